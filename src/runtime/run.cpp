#include "rpeg/runtime/run.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/job/tasks.h"
#include "runtime/context.h"
#include "runtime/executor.h"
#include "runtime/generation.h"
#include "runtime/outputs.h"
#include "runtime/summary.h"
#include "runtime/together.h"

namespace rpeg {
namespace {

constexpr double kLeastTimeout_s = 60.0;
constexpr double kPredictedTimes = 50.0;  ///< time-out in predicted iterations
constexpr double kMeasuredTimes = 20.0;   ///< and in measured ones, whichever is longer
constexpr double kUnpricedTimes = 10.0;   ///< of that, for evaluating and saving
constexpr double kMismatchAlarm = 1e-3;   ///< nats; fp32 rounding stays far below

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void check_world_size(const Job& job, const Comm& world) {
  const auto needed = static_cast<int>(job.ranks.size());
  if (world.size() != needed) {
    throw Error(ErrorKind::kUsage,
                fmt::format("run.yaml needs {0} ranks, mpirun started {1}: start with "
                            "mpirun -np {0}",
                            needed,
                            world.size()));
  }
}

/// A group of all ranks for what is not in the rank programs, whose tags are then all its own.
std::unique_ptr<Comm> control_group(Comm& world) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return world.subgroup(ranks);
}

std::vector<Prompt> load_eval_prompts(const DataConfig& data, const Tokenizer& tokenizer) {
  if (data.eval.empty()) {
    return {};
  }
  DatasetOptions options = data.train;
  options.path = data.eval;
  return load_dataset(options, tokenizer);
}

std::unique_ptr<RankContext> load_context(const Job& job,
                                          Comm& world,
                                          const RunOptions& options,
                                          const RunClock& clock) {
  const auto& actor = job.config.models[static_cast<std::size_t>(ModelRole::kActor)];
  check(actor.has_value(), "job without an actor");
  if (options.eval_only && job.config.data.eval.empty()) {
    throw Error(ErrorKind::kUsage, "--eval-only needs data.eval: the file of held-out prompts");
  }
  Tokenizer tokenizer = Tokenizer::load(actor->path);
  std::vector<Prompt> prompts = load_dataset(job.config.data.train, tokenizer);
  std::vector<Prompt> eval_prompts = load_eval_prompts(job.config.data, tokenizer);
  return std::make_unique<RankContext>(
      RankContext{.job = job,
                  .world = world,
                  .options = options,
                  .clock = clock,
                  .tokenizer = std::move(tokenizer),
                  .stop_tokens = load_stop_tokens(actor->path),
                  .prompts = std::move(prompts),
                  .eval_prompts = std::move(eval_prompts),
                  .replay = options.replay.empty() ? RolloutTable{} : load_rollouts(options.replay),
                  .models = build_rank_models(job, world.rank()),
                  .groups = {},
                  .data = {},
                  .reports = {},
                  .activations = {}});
}

/// The run of one rank, phase by phase.
struct Run {
  RankContext& context;
  Comm& control;
  LineFile metrics;   ///< rank 0
  LineFile rollouts;  ///< rank 0
  std::unique_ptr<TraceWriter> trace;
  std::vector<Report> reports;  ///< rank 0: of all ranks, by iteration, without rollouts
  RunSummary summary;
  bool warned_of_mismatch = false;
  double longest_iteration_s = 0.0;
};

double timeout_s(const Job& job, double longest_iteration_s) {
  return std::max({kLeastTimeout_s,
                   kPredictedTimes * job.predicted.iteration_time_s,
                   kMeasuredTimes * longest_iteration_s});
}

/// What the plan has no prediction for may take longer: other ranks wait at its end.
void allow_unpriced_work(const Run& run) {
  run.context.world.set_timeout(kUnpricedTimes *
                                timeout_s(run.context.job, run.longest_iteration_s));
}

/// Adds this rank's part of the greedy reward on data.eval; generation ranks share the prompts.
void evaluate_into(RankContext& context, Report& report) {
  const std::vector<int> ranks =
      vertex_leaders(context.job, find_vertex(context.job.graph, "g_pi"));
  const auto me = std::find(ranks.begin(), ranks.end(), context.world.rank());
  if (me != ranks.end()) {
    const Evaluation part =
        evaluate(context, static_cast<int>(me - ranks.begin()), static_cast<int>(ranks.size()));
    report[Sum::kEvalReward] += part.reward_sum;
    report[Sum::kEvalSequences] += part.prompts;
  }
}

double evaluated_reward(const Report& total) {
  const double sequences = total[Sum::kEvalSequences];
  return sequences > 0.0 ? total[Sum::kEvalReward] / sequences : kNan;
}

bool evaluation_due(const RankContext& context, std::int64_t iteration, std::int64_t iterations) {
  const std::int64_t every = context.job.config.data.eval_every;
  return !context.eval_prompts.empty() &&
         (iteration + 1 == iterations || (every > 0 && (iteration + 1) % every == 0));
}

/// Rank 0: files, alarm, the caller's display.
void publish(Run& run, std::int64_t iteration, Report total) {
  const IterationMetrics metrics = metrics_of(run.context.job, iteration, total);
  run.metrics.append(metrics_line(metrics) + "\n");
  run.rollouts.append(total.rollouts);
  total.rollouts.clear();
  run.reports.push_back(std::move(total));
  run.summary.iterations.push_back(metrics);
  if (metrics.mismatch_max > kMismatchAlarm && !run.warned_of_mismatch) {
    run.warned_of_mismatch = true;
    spdlog::warn(
        "iteration {}: log-probabilities of generation and training differ by up to {:.2e} on the "
        "same weights and tokens (alarm at {:.0e}; later iterations: mismatch_max in the metrics)",
        iteration,
        metrics.mismatch_max,
        kMismatchAlarm);
  }
  if (run.context.options.on_iteration) {
    run.context.options.on_iteration(metrics);
  }
}

/// One iteration; returns the report of all ranks.
Report run_iteration(Run& run, std::int64_t iteration, std::int64_t iterations) {
  RankContext& context = run.context;
  const Job& job = context.job;
  const double start_s = context.clock.now_s();
  Report& report = context.reports[iteration];
  report.task_s.resize(task_names(job).size());
  context.data[iteration].prompts =
      iteration_prompts(static_cast<std::int64_t>(context.prompts.size()),
                        job.inputs.workload.batch_size,
                        iteration,
                        job.config.data.shuffle,
                        job.seed);
  run_program(context, iteration, run.trace.get());
  context.world.flush();
  // Without the evaluation, which is not part of the predicted iteration.
  report.iteration_s = context.clock.now_s() - start_s;
  if (evaluation_due(context, iteration, iterations)) {
    allow_unpriced_work(run);
    evaluate_into(context, report);
  }
  report.stop = context.options.stop != nullptr && context.options.stop->load();
  Report total = gather_reports(run.control, std::move(report));
  context.reports.erase(iteration);
  context.data.erase(iteration);
  run.summary.final_eval_reward = evaluated_reward(total);
  return total;
}

void run_iterations(Run& run) {
  RankContext& context = run.context;
  const std::int64_t limit = context.options.max_iterations;
  const std::int64_t planned = context.job.config.train.iterations;
  const std::int64_t iterations = limit >= 0 ? std::min(limit, planned) : planned;
  for (std::int64_t k = 0; k < iterations; ++k) {
    Report total = run_iteration(run, k, iterations);
    run.longest_iteration_s = std::max(run.longest_iteration_s, total.iteration_s);
    context.world.set_timeout(timeout_s(context.job, run.longest_iteration_s));
    run.summary.stopped = total.stop && k + 1 < iterations;
    if (context.world.rank() == 0) {
      publish(run, k, std::move(total));
    }
    if (run.summary.stopped) {
      return;
    }
  }
}

void evaluate_only(Run& run) {
  Report report;
  allow_unpriced_work(run);
  evaluate_into(run.context, report);
  const Report total = gather_reports(run.control, std::move(report));
  run.summary.final_eval_reward = evaluated_reward(total);
}

/// The lowest rank of each training group writes its model.
void save_models(const RankContext& context) {
  const JobConfig& config = context.job.config;
  if (config.runtime.save_dir.empty()) {
    return;
  }
  for (std::size_t i = 0; i < context.job.copies.size(); ++i) {
    const WeightCopy& copy = context.job.copies[i];
    const std::vector<int>& ranks = context.job.blocks[static_cast<std::size_t>(copy.block)].ranks;
    if (copy.is_trained && *std::min_element(ranks.begin(), ranks.end()) == context.world.rank()) {
      const HeldModel& model = context.models.at(static_cast<int>(i));
      save_hf_directory(config.runtime.save_dir / to_string(copy.model),
                        model.spec,
                        model.layout,
                        model.weights,
                        config.models[static_cast<std::size_t>(ModelRole::kActor)]->path);
    }
  }
}

void finish(Run& run) {
  allow_unpriced_work(run);
  const ClockSample clock = run.context.clock.measure(run.control);
  run_together(run.control, [&] {
    save_models(run.context);
    if (run.trace != nullptr) {
      run.trace->close(clock);
    }
  });
  run_together(run.control, [&] {
    if (run.context.world.rank() == 0) {
      summarise_run(run.context.job, run.reports, run.summary);
    }
  });
}

/// Opens this rank's files. An evaluation writes none: it must not empty those of a training run.
/// Nor does a replay write rollouts: they may be the very file that it reads.
Run open_run(RankContext& context, Comm& control) {
  const RuntimeConfig& config = context.job.config.runtime;
  const bool trains = !context.options.eval_only;
  const bool writes = trains && context.world.rank() == 0;
  Run run{.context = context,
          .control = control,
          .metrics = LineFile(writes ? metrics_file(config, "metrics.jsonl") : ""),
          .rollouts = LineFile(writes && context.replay.empty() ? config.rollouts : ""),
          .trace = nullptr,
          .reports = {},
          .summary = {},
          .warned_of_mismatch = false,
          .longest_iteration_s = 0.0};
  if (trains && !config.trace_dir.empty()) {
    run.trace = std::make_unique<TraceWriter>(config.trace_dir,
                                              TraceStart{context.world.rank(),
                                                         context.world.size(),
                                                         context.job.plan_digest,
                                                         context.clock.start()});
  }
  run.summary.final_eval_reward = kNan;
  return run;
}

}  // namespace

RunSummary run_job(const Job& job, Comm& world, const RunOptions& options) {
  check_world_size(job, world);
  world.set_timeout(timeout_s(job, 0.0));
  const std::unique_ptr<Comm> control = control_group(world);
  const RunClock clock(*control);
  std::unique_ptr<RankContext> context;
  std::optional<Run> run;
  run_together(*control, [&] {
    context = load_context(job, world, options, clock);
    run.emplace(open_run(*context, *control));
  });
  context->groups = form_groups(job, world);
  for (auto& [copy, model] : context->models) {
    const int block = job.copies[static_cast<std::size_t>(copy)].block;
    model.groups = context->groups.at(block).shard_groups();
  }
  if (options.on_start) {
    options.on_start();
  }
  if (options.eval_only) {
    evaluate_only(*run);
    return std::move(run->summary);
  }
  run_iterations(*run);
  finish(*run);
  return std::move(run->summary);
}

}  // namespace rpeg
