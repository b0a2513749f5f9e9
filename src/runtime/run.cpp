#include "rpeg/runtime/run.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "rpeg/base/error.h"
#include "rpeg/job/tasks.h"
#include "runtime/context.h"
#include "runtime/evaluation.h"
#include "runtime/executor.h"
#include "runtime/outputs.h"
#include "runtime/save.h"
#include "runtime/summary.h"
#include "runtime/together.h"

namespace rpeg {
namespace {

constexpr double kMismatchAlarm = 1e-3;  ///< nats; fp32 rounding stays far below

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

/// A run that would start a program named in its configuration needs the user's word for it.
void check_commands(const Job& job, const RunOptions& options) {
  const VerifierSpec& verifier = job.config.verifier;
  if (verifier.kind == VerifierKind::kCommand && !options.allow_commands) {
    throw Error(ErrorKind::kUsage,
                fmt::format("the job's rewards come from the command {}: rpeg-run starts programs "
                            "of a job only with --allow-commands",
                            fmt::join(verifier.command, " ")));
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

/// The prompts of preference pairs.
std::vector<Prompt> prompts_of(const std::vector<PreferencePair>& pairs) {
  std::vector<Prompt> prompts;
  for (const PreferencePair& pair : pairs) {
    Prompt prompt;
    prompt.text = pair.prompt;
    prompt.tokens = pair.prompt_tokens;
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

void check_evaluation(const Job& job, const RunOptions& options) {
  const bool evaluates = !job.config.data.eval.empty();
  if (options.eval_only && !evaluates) {
    throw Error(ErrorKind::kUsage, "--eval-only needs data.eval: the file of held-out prompts");
  }
  if (evaluates && job.config.verifier.kind == VerifierKind::kNone) {
    throw Error(ErrorKind::kUsage,
                "data.eval needs a verifier (reward.verifier): held-out responses are not scored "
                "by a reward model; remove data.eval, or name a verifier");
  }
}

std::unique_ptr<RankContext> load_context(const Job& job,
                                          Comm& world,
                                          const RunOptions& options,
                                          const RunClock& clock) {
  const auto& actor = job.config.models[static_cast<std::size_t>(ModelRole::kActor)];
  check(actor.has_value(), "job without an actor");
  check_evaluation(job, options);
  Tokenizer tokenizer = Tokenizer::load(actor->path);
  std::vector<std::int32_t> stop_tokens = load_stop_tokens(actor->path);
  std::vector<PreferencePair> pairs;
  if (trains_on_preferences(job.inputs.policy)) {
    if (!options.replay.empty()) {
      throw Error(ErrorKind::kUsage,
                  "--replay: offline DPO trains on given responses and generates none; remove it");
    }
    pairs = load_preferences(job.config.data.train, tokenizer, stop_tokens);
  }
  std::vector<Prompt> prompts =
      pairs.empty() ? load_dataset(job.config.data.train, tokenizer) : prompts_of(pairs);
  std::vector<Prompt> eval_prompts = load_eval_prompts(job.config.data, tokenizer);
  return std::make_unique<RankContext>(
      RankContext{.job = job,
                  .world = world,
                  .options = options,
                  .clock = clock,
                  .tokenizer = std::move(tokenizer),
                  .stop_tokens = std::move(stop_tokens),
                  .prompts = std::move(prompts),
                  .eval_prompts = std::move(eval_prompts),
                  .replay = options.replay.empty() ? RolloutTable{} : load_rollouts(options.replay),
                  .models = build_rank_models(job, world.rank()),
                  .groups = {},
                  .data = {},
                  .reports = {},
                  .activations = {},
                  .pairs = std::move(pairs)});
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

/// What the plan has no prediction for may take longer: other ranks wait at its end.
void allow_unpriced_work(const Run& run) {
  const double limit_s =
      wait_limit_s(run.context.job, run.longest_iteration_s, control_lead(run.context.job));
  run.context.world.set_timeout(kUnpricedTimes * limit_s);
}

double evaluated_reward(const Report& total) {
  const double sequences = total[Sum::kEvalSequences];
  return sequences > 0.0 ? total[Sum::kEvalReward] / sequences : kNan;
}

/// Rank 0: files, alarm, the caller's display.
void publish(Run& run, std::int64_t iteration, Report total) {
  const IterationMetrics metrics = metrics_of(run.context.job, iteration, total);
  run.metrics.append(metrics_line(metrics) + "\n");
  // Moved out: reports are kept, and a cleared string would keep its memory.
  const std::string lines = std::move(total.rollouts);
  run.rollouts.append(lines);
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

/// Greedy reward of the present weights, on all ranks.
double evaluate_now(Run& run) {
  Report report;
  allow_unpriced_work(run);
  evaluate_into(run.context, report);
  return evaluated_reward(gather_reports(run.control, std::move(report)));
}

void run_iterations(Run& run) {
  RankContext& context = run.context;
  const std::int64_t limit = context.options.max_iterations;
  const std::int64_t in_job = context.job.config.train.iterations;
  const std::int64_t planned = limit >= 0 ? std::min(limit, in_job) : in_job;
  RunControl control(
      run.control,
      control_lead(context.job),
      planned,
      context.options.stop,
      [&](std::int64_t iteration, Report total) { publish(run, iteration, std::move(total)); });
  const std::int64_t iterations = run_program(context, control, planned, run.trace.get());
  run.longest_iteration_s = control.longest_iteration_s();
  run.summary.stopped = control.stopped();
  allow_unpriced_work(run);  // of the slowest rank, before others reach the end
  drain_weights(context, iterations, run.trace.get());
  control.drain();
  context.world.flush();
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
  // After saving, so that a reward command that fails now costs a number and not the models. A stop
  // is to be quick: it leaves the evaluation out.
  if (!run.summary.stopped && !run.context.eval_prompts.empty()) {
    run.summary.final_eval_reward = evaluate_now(run);
  }
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
  check_commands(job, options);
  world.set_timeout(wait_limit_s(job, 0.0, control_lead(job)));
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
    run->summary.final_eval_reward = evaluate_now(*run);
    return std::move(run->summary);
  }
  run_iterations(*run);
  finish(*run);
  return std::move(run->summary);
}

}  // namespace rpeg
