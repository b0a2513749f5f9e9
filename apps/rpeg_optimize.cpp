// rpeg-optimize: hw.yaml + workload configuration -> the fastest execution plan.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <iostream>

#include "common.h"
#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/report/report.h"

namespace {

using namespace rpeg;

constexpr const char* kExamples = R"(Examples:
  rpeg-optimize --hw hw.yaml --config workload.yaml --time 600
  rpeg-optimize --hw builtin:h100-sxm --config workload.yaml --evals 20000 --plots
  rpeg-optimize --hw hw.yaml --evaluate plans/optimized.yaml
Exit codes: 0 success, 2 usage or input, 3 no plan fits, 70 internal error.)";

struct Flags {
  std::string hw, config, evaluate, base_plan, opt_plan, log_file;
  std::optional<std::int64_t> evals;
  std::optional<double> time_s;
  std::optional<std::uint64_t> seed;
  bool plots = false, debug = false, quiet = false;
};

std::atomic<bool> stop_requested{false};
void request_stop(int signal) {
  stop_requested = true;
  std::signal(signal, SIG_DFL);  // the second one ends the program
}

void add_flags(CLI::App& app, Flags& flags) {
  app.footer(kExamples);
  app.add_option("--hw", flags.hw, "Hardware: rpeg-calibrate's file, or builtin:NAME")->required();
  auto* config = app.add_option("--config", flags.config, "Workload configuration");
  auto* evaluate = app.add_option("--evaluate", flags.evaluate, "Only predict for this plan file");
  auto* evals = app.add_option("--evals", flags.evals, "Evaluations in all; reproducible exactly");
  auto* time = app.add_option("--time", flags.time_s, "Wall clock of the search, seconds");
  evals->check(apps::above_zero)->excludes(time);
  time->check(apps::above_zero);
  auto* seed = app.add_option("--seed", flags.seed, "Overrides the configuration's seed");
  seed->check(apps::seed_of_a_file);
  auto* base = app.add_option("--base-plan", flags.base_plan, "Where to save the greedy plan");
  auto* best = app.add_option("--opt-plan", flags.opt_plan, "Where to save the optimized plan");
  app.add_option("--log-file", flags.log_file, "Also log to this file");
  auto* plots = app.add_flag("--plots", flags.plots, "Draw the graph and the timelines (PDF)");
  app.add_flag("--debug", flags.debug, "Log decisions");
  app.add_flag("--quiet", flags.quiet, "Warnings, errors and the result only");
  for (auto* of_a_search : {config, evals, time, seed, base, best, plots}) {
    evaluate->excludes(of_a_search);
  }
}

/// The configuration with what the flags override.
WorkloadConfig load_config(const Flags& flags) {
  if (flags.config.empty()) throw Error(ErrorKind::kUsage, "give --config or --evaluate");
  WorkloadConfig config = load_workload_config(flags.config);
  config.seed = flags.seed.value_or(config.seed);
  config.output.plots |= flags.plots;
  if (!flags.base_plan.empty()) config.output.base_plan = flags.base_plan;
  if (!flags.opt_plan.empty()) config.output.opt_plan = flags.opt_plan;
  if (!flags.log_file.empty()) config.output.log_file = flags.log_file;
  return config;
}

/// What the user should know before the search rather than after it.
void check_outputs(const WorkloadConfig& config) {
  if (!config.output.opt_plan.empty() && config.output.opt_plan == config.output.base_plan) {
    throw Error(ErrorKind::kUsage,
                "the base plan and the optimized plan have one path: " + config.output.opt_plan);
  }
  for (const std::string& path : {config.output.base_plan, config.output.opt_plan}) {
    if (!path.empty()) apps::check_writable(path);
  }
  if (config.output.plots && !config.output.plots_dir.empty()) {
    ensure_directory(config.output.plots_dir);
  }
  if (config.output.opt_plan.empty()) {
    spdlog::warn("the plan will not be saved: give --opt-plan FILE");
  }
  if (config.policy.allow_ac_share) {
    spdlog::warn("policy.allow_ac_share: this version keeps actor and critic apart in every plan");
  }
}

HardwareProfile load_hardware(const Flags& flags) {
  HardwareProfile profile = load_hardware_profile(flags.hw);
  for (const std::string& warning : profile.warnings) spdlog::warn("{}", warning);
  return profile;
}

void evaluate(const Flags& flags) {
  apps::set_up_logging({flags.debug, flags.quiet, flags.log_file});
  const PlanFile file = load_plan_file(flags.evaluate);
  const HardwareProfile profile = load_hardware(flags);
  const Evaluation evaluation = evaluate_plan(file.plan, file.inputs, profile);
  std::cout << plan_report(evaluation, file.inputs, describe(profile));
  if (!evaluation.fits()) throw Error(ErrorKind::kInfeasible, evaluation.priced.overflow_text);
}

void optimize(const Flags& flags, int argc, const char* const* argv) {
  const WorkloadConfig config = load_config(flags);
  apps::set_up_logging({flags.debug, flags.quiet, config.output.log_file});
  const HardwareProfile profile = load_hardware(flags);
  check_outputs(config);
  spdlog::info("config={} seed={} hardware={}", flags.config, config.seed, describe(profile));
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
  SearchOptions options;
  options.evaluations = flags.evals;
  options.time_s = flags.time_s;
  options.stop = &stop_requested;
  if (!flags.quiet) options.progress = progress_printer(apps::is_interactive());
  const SearchResult result = search_plan(config, profile, options);
  if (apps::is_interactive()) std::cerr << "\r\033[K";
  std::cout << search_report(result, config, describe(profile)) << '\n';
  std::vector<std::string> inputs{flags.config};
  if (!flags.hw.starts_with("builtin:")) inputs.push_back(flags.hw);
  const auto provenance = apps::make_provenance("rpeg-optimize", argc, argv, inputs);
  for (const auto& path : save_results(result, config, provenance)) {
    std::cout << "wrote " << path.string() << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_main("rpeg-optimize", [&] {
    Flags flags;
    CLI::App app("Finds the fastest execution plan of a training job", "rpeg-optimize");
    add_flags(app, flags);
    if (!apps::parse_flags(app, argc, argv)) return;
    flags.evaluate.empty() ? optimize(flags, argc, argv) : evaluate(flags);
  });
}
