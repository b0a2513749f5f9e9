#pragma once

/// The recorded batches that the layout tests train on and infer from, and ranks as threads.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/context.h"

namespace rpeg {

/// One training to run.
struct TrainingCase {
  Algorithm algorithm = Algorithm::kGrpo;
  DpoMode dpo_mode = DpoMode::kOffline;
  bool ac_share = false;
  bool recompute_logprobs = false;  ///< and the decoupled loss
  bool reward_model = false;        ///< i_R scores instead of a verifier
  bool tied = false;
  Parallelism layout = {};  ///< of every vertex, all on the same ranks
  std::int64_t micro_batches = 1;
  std::int64_t minibatches = 2;
  std::int64_t epochs = 1;
  std::int64_t iterations = 3;
  std::int64_t zero_stage = 1;
  Recompute recompute = Recompute::kFull;
};

/// The job of a case, with files below the test's directory; changes to it are the caller's.
Job training_job(const TrainingCase& options);

/// A sequence of an iteration, with everything that any vertex could read.
SequenceData recorded_sequence(const WorkloadConfig& inputs,
                               std::int64_t iteration,
                               std::int64_t sequence);
std::vector<Prompt> recorded_prompts();

/// A rank's models and groups, and the recorded prompts.
std::unique_ptr<RankContext> rank_context(const Job& job, Comm& world, const RunOptions& options);

/// An iteration of a rank that knows no sequence yet.
IterationData& recorded_iteration(RankContext& context, std::int64_t iteration);

/// Runs every rank of the job as a thread. Rethrows what a rank threw, after expecting that all
/// ranks threw the same.
void on_threads(const Job& job, const std::function<void(Comm&)>& body);

}  // namespace rpeg
