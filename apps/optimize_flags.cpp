#include "optimize_flags.h"

#include <CLI/CLI.hpp>

namespace rpeg::apps {
namespace {

constexpr const char* kExamples = R"(Examples:
  rpeg-optimize --hw hw.yaml --config workload.yaml --time 600 --opt-plan plan.yaml
  rpeg-optimize --hw builtin:h100-sxm --config workload.yaml --evals 20000 --plots
  rpeg-optimize --hw hw.yaml --config workload.yaml --start plan.yaml --pin t_pi --pin g_pi=4,1,2
  rpeg-optimize --hw hw.yaml --config workload.yaml --evals 100000 --top 5 --explain greedy
  rpeg-optimize --hw hw.yaml --config workload.yaml --sweep gpus=8,16,32 --evals 20000
  rpeg-optimize --hw hw.yaml --evaluate plan.yaml --explain other.yaml
  rpeg-optimize --hw hw.yaml --config workload.yaml --evaluate split-async
  rpeg-optimize --hw hw.yaml --observed metrics/observed.yaml --config workload.yaml --time 60
Names of plans: greedy, concurrent, colocated-uniform, split-async, real-heuristic.
Exit codes: 0 success, 2 usage or input, 3 no plan fits, 70 internal error.)";

/// An empty word would count as a flag that is not given.
std::string not_empty(const std::string& text) {
  return text.empty() ? "expected a value, found an empty one" : "";
}

/// What the search is made of.
std::vector<CLI::Option*> add_search_flags(CLI::App& app, OptimizeFlags& flags) {
  auto* evals = app.add_option("--evals", flags.evals, "Evaluations in all; reproducible exactly");
  auto* time = app.add_option("--time", flags.time_s, "Wall clock of the search, seconds");
  evals->check(above_zero)->excludes(time);
  time->check(above_zero);
  auto* exhaustive =
      app.add_flag("--exhaustive", flags.exhaustive, "Try every plan; for small spaces");
  exhaustive->excludes(evals)->excludes(time);
  auto* seed = app.add_option("--seed", flags.seed, "Overrides the configuration's seed");
  seed->check(seed_of_a_file);
  auto* threads = app.add_option("--threads", flags.threads, "Threads (all cores); same result");
  threads->check(above_zero);
  auto* objective =
      app.add_option("--objective", flags.objective, "throughput or cost: overrides the file's");
  objective->check(CLI::IsMember({"throughput", "cost"}));
  auto* pin = app.add_option("--pin",
                             flags.pins,
                             "Keep a decision: g_pi=4,1,2 (dp,pp,tp), g_pi=m8, "
                             "\"g_pi=r0 n[0-1] g[0-3]\", or g_pi: all as in --start; repeatable");
  pin->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return {evals, time, exhaustive, seed, threads, objective, pin};
}

/// What one search takes and leaves behind.
std::vector<CLI::Option*> add_result_flags(CLI::App& app, OptimizeFlags& flags) {
  auto* start = app.add_option("--start", flags.start, "Begin at this plan file or named plan");
  auto* top = app.add_option("--top", flags.top, "Report and save the K best distinct plans");
  top->check(above_zero);
  start->check(not_empty);
  auto* base = app.add_option("--base-plan", flags.base_plan, "Where to save the greedy plan");
  auto* best = app.add_option("--opt-plan", flags.opt_plan, "Where to save the optimized plan");
  for (auto* path : {base, best}) path->check(not_empty);
  auto* plots = app.add_flag("--plots", flags.plots, "Draw the graph and the timelines (PDF)");
  return {start, top, base, best, plots};
}

void exclude(CLI::Option* option, const std::vector<CLI::Option*>& others) {
  for (CLI::Option* other : others) option->excludes(other);
}

}  // namespace

bool parse_optimize_flags(int argc, const char* const* argv, OptimizeFlags* flags) {
  CLI::App app("Finds the fastest execution plan of a training job", "rpeg-optimize");
  app.footer(kExamples);
  app.add_option("--hw", flags->hw, "Hardware: rpeg-calibrate's file, or builtin:NAME")->required();
  app.add_option("--observed", flags->observed, "Scale predictions by a run's observed.yaml")
      ->check(not_empty);
  app.add_option("--config", flags->config, "Workload configuration");
  app.add_option("--lengths", flags->lengths, "Response lengths (JSONL) instead of gen_quantiles");
  auto* evaluate =
      app.add_option("--evaluate", flags->evaluate, "Only predict for this plan file or name");
  auto* explain = app.add_option(
      "--explain", flags->explain_against, "Reasons; with a plan file or name: and differences");
  explain->expected(0, 1);
  auto* sweep = app.add_option("--sweep", flags->sweep, "gpus=8,16,32: a search for each size");
  auto* sweep_out = app.add_option("--sweep-out", flags->sweep_out, "The sweep's table as CSV");
  sweep_out->needs(sweep);
  for (auto* option : {evaluate, explain, sweep, sweep_out}) option->check(not_empty);
  const auto search = add_search_flags(app, *flags);
  const auto results = add_result_flags(app, *flags);
  app.add_option("--log-file", flags->log_file, "Also log to this file");
  app.add_flag("--debug", flags->debug, "Log decisions");
  auto* check = app.add_flag("--check-scores",
                             flags->check_scores,
                             "Compare every score with the evaluation from scratch (slow)");
  app.add_flag("--quiet", flags->quiet, "Warnings, errors and the result only");
  exclude(evaluate, search);
  exclude(evaluate, {check});
  exclude(evaluate, results);
  exclude(sweep, results);
  exclude(sweep, {evaluate, explain});
  if (!parse_flags(app, argc, argv)) return false;
  flags->explains = explain->count() > 0;
  return true;
}

}  // namespace rpeg::apps
