#pragma once

/// Training without the rest of a run: every rank of a layout is a thread that trains the same
/// recorded batches. What came out, in whole tensors, can be compared between layouts.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "recorded_batch.h"

namespace rpeg {

/// A tensor of a whole model by its name, behind the name of the vertex that trains it.
using WholeTensors = std::map<std::string, std::vector<float>>;

struct TrainingOutcome {
  std::vector<std::map<std::string, double>> losses;  ///< by iteration: "policy", "value", …
  std::vector<WholeTensors> gradients;                ///< by mini-batch in order, before clipping
  WholeTensors initial;
  WholeTensors final_weights;
  std::set<double> kl_coefs;      ///< KL coefficients for the next iteration, of all ranks
  std::int64_t most_moments = 0;  ///< elements of the largest rank's first moment
};

/// Trains `iterations` iterations on all ranks of the job, each replica's leader holding the
/// recorded sequences of its replica and the other ranks nothing. Expects equal bits of all copies
/// of a tensor. Rethrows what a rank threw, after checking that all ranks threw the same.
TrainingOutcome train_on_threads(const Job& job);

/// Relative L2 distances: of the worst tensor of the worst mini-batch; of the worst tensor's
/// update, final - initial.
double gradient_distance(const TrainingOutcome& a, const TrainingOutcome& b);
double update_distance(const TrainingOutcome& a, const TrainingOutcome& b);
/// Largest difference of a loss.
double loss_distance(const TrainingOutcome& a, const TrainingOutcome& b);

}  // namespace rpeg
