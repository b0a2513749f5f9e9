#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rpeg/job/compile.h"
#include "rpeg/runtime/run.h"

namespace rpeg {

/// A small job on the data and the model of the copy demonstration (two layers, repeat three
/// digits), with any placement.
struct CopyJob {
  Algorithm algorithm = Algorithm::kGrpo;
  std::int64_t iterations = 3;
  std::int64_t prompts = 8;
  std::int64_t samples = 4;
  std::int64_t epochs = 1;
  std::int64_t minibatches = 1;
  std::int64_t micro_batches = 1;  ///< of every vertex
  bool recompute_logprobs = false;
  double learning_rate = 2e-3;
  /// Block of each vertex on one node of four GPUs; the others run on `elsewhere`. dp = its size.
  std::map<std::string, std::string> placements;
  std::string elsewhere = "r0 n[0-0] g[0-0]";
  std::map<std::string, Parallelism> layouts;  ///< of vertices that are not to be dp = size
  std::optional<Parallelism> layout;           ///< of all others
  std::int64_t tau = 0;                        ///< of the actor, and of the critic
  std::map<std::string, std::int64_t> shifts;  ///< a schedule in graph order with these shifts
  bool is_cut = false;                         ///< generation cut where half of the responses end
  bool ac_share = false;
  std::filesystem::path reward_model;  ///< scores the responses instead of the copy verifier
  std::filesystem::path preferences;   ///< of offline DPO, with fields prompt, chosen, rejected
  Publish publish = Publish::kAuto;
  std::int64_t generation_length = 3;
  std::uint64_t seed = 1;  ///< of the plan: sampling and data order
};

/// Compiles the job; its outputs go below `directory`.
Job compile_copy_job(const CopyJob& options, const std::filesystem::path& directory);

/// Runs a job on `ranks` threads (0: as many as the job has); returns rank 0's summary. Rethrows
/// what the lowest failing rank threw.
RunSummary run_on_threads(const Job& job, const RunOptions& options = {}, int ranks = 0);

/// An empty directory for one test.
std::filesystem::path fresh_directory(const std::string& name);

}  // namespace rpeg
