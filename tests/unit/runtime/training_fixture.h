#pragma once

/// Training without the rest of a run: every rank of a layout is a thread that trains the same
/// recorded batches. What came out, in whole tensors, can be compared between layouts.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "rpeg/job/job.h"

namespace rpeg {

/// One training to run.
struct TrainingCase {
  Algorithm algorithm = Algorithm::kGrpo;
  DpoMode dpo_mode = DpoMode::kOffline;
  bool ac_share = false;
  bool recompute_logprobs = false;  ///< and the decoupled loss
  bool reward_model = false;  ///< i_R scores instead of a verifier
  bool tied = false;
  Parallelism layout = {};  ///< of every vertex, all on the same ranks
  std::int64_t micro_batches = 1;
  std::int64_t minibatches = 2;
  std::int64_t epochs = 1;
  std::int64_t iterations = 3;
  std::int64_t zero_stage = 1;
  Recompute recompute = Recompute::kFull;
};

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

/// The job of a case, with files below the test's directory; changes to it are the caller's.
Job training_job(const TrainingCase& options);

/// What the inference vertices found out about each sequence of iteration 0, by vertex: numbers per
/// response token, or the score. Every leader holds the recorded rollouts of its sequences alone.
using InferenceOutcome = std::map<std::string, std::map<std::int64_t, std::vector<float>>>;
InferenceOutcome infer_on_threads(const Job& job);

/// The same of one sequence, in one piece on this thread. `vertex` is one of the job's.
std::vector<float> infer_alone(const Job& job, const std::string& vertex, std::int64_t sequence);

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
