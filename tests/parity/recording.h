#pragma once

/// What a run computed, put together from the shards of its ranks, and comparisons of two runs.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "rpeg/job/job.h"
#include "rpeg/runtime/run.h"
#include "runtime/replay.h"

namespace rpeg {

/// Whole tensors by Hugging Face name.
using WholeTensors = std::map<std::string, std::vector<float>>;

struct Recording {
  RunSummary summary;
  /// Per trained vertex and mini-batch, in the order of the updates: gradients before clipping.
  std::map<std::string, std::vector<WholeTensors>> gradients;
  std::map<std::string, WholeTensors> updates;  ///< last minus first weights: actor, critic
  RolloutTable rollouts;                        ///< empty in a replay
};

/// Runs the job on threads. `replay`: the rollouts to take, "" to sample.
Recording record(const Job& job, const std::filesystem::path& replay = {});

/// |a − b| / |b| over all elements of a tensor; a tensor of zeros compares by |a|.
double relative_distance(const std::vector<float>& a, const std::vector<float>& b);

/// What differs between two runs beyond the tolerances, in words; empty: nothing.
struct Tolerances {
  double loss = 1e-5;
  double gradient = 1e-5;  ///< relative L2 per tensor
  double update = 1e-3;    ///< relative L2 per tensor
};
std::vector<std::string> differences(const Recording& run,
                                     const Recording& reference,
                                     const Tolerances& tolerances = {});

}  // namespace rpeg
