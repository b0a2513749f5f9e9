#pragma once

/// Module `runtime`: executes a compiled job. `run_job` is the entry: every rank calls it with the
/// same job and its own communicator.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "rpeg/comm/comm.h"
#include "rpeg/job/job.h"
#include "rpeg/model/parameters.h"
#include "rpeg/trace/analysis.h"

namespace rpeg {

/// Metrics of one iteration over all ranks; NaN where the algorithm has no such number.
struct IterationMetrics {
  std::int64_t iteration = 0;
  double reward_mean = 0.0;
  double reward_std = 0.0;
  double response_tokens_mean = 0.0;
  double stopped_share = 0.0;  ///< responses that ended with a stop token
  double policy_loss = 0.0;
  double value_loss = 0.0;
  double kl_reference = 0.0;  ///< mean per token, KL estimate against the reference
  double kl_old = 0.0;        ///< mean of old − new log-probability in the first pass
  double clip_fraction = 0.0;
  double entropy = 0.0;
  double gradient_norm_actor = 0.0;
  double gradient_norm_critic = 0.0;
  double learning_rate = 0.0;
  double mismatch_mean = 0.0;  ///< |log π_generate − log π_train| on the same weights and tokens
  double mismatch_max = 0.0;
  double dpo_pairs = 0.0;     ///< pairs trained; online: prompts whose samples differ in reward
  double dpo_margin = 0.0;    ///< mean of β·Δ over the pairs of the first pass
  double dpo_accuracy = 0.0;  ///< share of pairs with Δ > 0
  double dpo_chosen_reward = 0.0;    ///< mean of β (log π − log π_ref) of the chosen responses
  double dpo_rejected_reward = 0.0;  ///< and of the rejected ones
  double iteration_s = 0.0;          ///< of the slowest rank, without evaluation
  double tokens_per_s = 0.0;         ///< prompt and response tokens of the batch per second
  /// Of the weights that the iteration generated with, before it did; NaN when not evaluated.
  double eval_reward = 0.0;
};

/// Predicted beside measured, per task of the schedule.
struct VertexTiming {
  std::string id;
  double predicted_s = 0.0;
  double measured_s = 0.0;  ///< median over iterations of the slowest rank
  bool is_outlier = false;  ///< it is off by itself, not with all the others
  double bytes = 0.0;       ///< of a transfer: between ranks, in one iteration
};

struct RunSummary {
  std::vector<IterationMetrics> iterations;  ///< on rank 0; empty elsewhere
  std::vector<VertexTiming> timings;         ///< on rank 0
  std::vector<RankUse> ranks;                ///< on rank 0, with runtime.trace; else empty
  double predicted_iteration_s = 0.0;
  double measured_iteration_s = 0.0;  ///< median
  double final_eval_reward = 0.0;     ///< of the final weights, on all ranks; NaN: not evaluated
  bool stopped = false;               ///< a signal ended the run early; on all ranks
};

/// This rank's shard of the gradient of one mini-batch, complete, before clipping.
struct GradientView {
  const std::string& vertex;
  std::int64_t iteration = 0;
  int rank = 0;
  const ParameterLayout& layout;
  std::span<const float> gradient;  ///< (layout.total)
};

struct RunOptions {
  bool eval_only = false;        ///< greedy reward on data.eval, no training
  std::filesystem::path replay;  ///< take rollouts from this JSONL instead of generating; "": off
  bool allow_commands = false;   ///< a reward command of the job may be started
  std::int64_t max_iterations = -1;  ///< stop earlier than the job says; -1: off
  /// Set by a signal: end with the iteration, save, return. Where iterations overlap, those that
  /// ranks have been told to run are finished first (docs/runtime.md).
  const std::atomic<bool>* stop = nullptr;
  std::function<void()> on_start;  ///< once all ranks have loaded their models and data
  std::function<void(const IterationMetrics&)> on_iteration;  ///< rank 0, after each iteration
  /// Every rank, for every mini-batch that it trains; for tests: it costs an all-reduce. To be set
  /// on all ranks or none.
  std::function<void(const GradientView&)> on_gradient;
};

/// Runs the job on this rank of `world`, whose size must be the job's rank count (kUsage
/// otherwise). What fails before `on_start` fails on all ranks with the same error. Throws kRuntime
/// naming vertex and iteration for a non-finite loss or gradient, kUsage for a job with a reward
/// command that `allow_commands` does not allow.
///
/// Writes, as far as the job names them: metrics_dir/metrics.jsonl and the rollouts while it runs
/// (rank 0), trace_dir/rank_<r>.jsonl, save_dir/{actor,critic}, metrics_dir/summary.yaml and
/// metrics_dir/observed.yaml at the end.
RunSummary run_job(const Job& job, Comm& world, const RunOptions& options);

/// Runs `body` on all ranks of a group. When it throws an Error on any of them, all throw the error
/// of the lowest such rank, which its message names unless all have the same.
void run_together(Comm& comm, const std::function<void()>& body);

/// The reward curve as text for a terminal: `rows` lines of block characters, the mean of each
/// column's iterations, with axis labels. Empty when there are no rewards.
std::string reward_curve(const std::vector<IterationMetrics>& iterations, int columns, int rows);

}  // namespace rpeg
