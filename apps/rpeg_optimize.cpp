// rpeg-optimize: hw.yaml + workload configuration -> the fastest execution plan.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <iostream>

#include "common.h"
#include "optimize_inputs.h"
#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/spec/scaled_cluster.h"

namespace {

using namespace rpeg;
using apps::OptimizeFlags;

std::atomic<bool> stop_requested{false};
void request_stop(int) {
  stop_requested = true;
  // The second one ends the program.
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

void explain(const Evaluation& evaluation,
             const WorkloadConfig& config,
             const HardwareProfile& profile,
             const std::optional<NamedPlan>& other) {
  std::cout << '\n' << explain_report(evaluation, config, profile, other ? &*other : nullptr);
}

/// The plan that --explain names, if it names one.
std::optional<NamedPlan> load_other(const OptimizeFlags& flags,
                                    const WorkloadConfig& config,
                                    const HardwareProfile& profile) {
  if (flags.explain_against.empty()) return std::nullopt;
  return apps::load_plan(flags.explain_against, config, profile);
}

std::string explain_hint(const OptimizeFlags& flags) {
  return flags.explains ? "" : " (--explain names the smallest change that fits)";
}

void evaluate(const OptimizeFlags& flags) {
  apps::set_up_logging({flags.debug, flags.quiet, flags.log_file});
  const HardwareProfile profile = apps::load_hardware(flags);
  const PlanFile file = apps::load_plan_to_evaluate(flags, profile);
  const auto other = load_other(flags, file.inputs, profile);
  const Evaluation evaluation = evaluate_plan(file.plan, file.inputs, profile);
  std::cout << plan_report(evaluation, file.inputs, describe(profile));
  if (flags.explains) explain(evaluation, file.inputs, profile, other);
  if (!evaluation.fits()) {
    throw Error(ErrorKind::kInfeasible, evaluation.priced.overflow_text + explain_hint(flags));
  }
  const std::string too_long = too_long_text(evaluation);
  if (!too_long.empty()) throw Error(ErrorKind::kInfeasible, too_long);
}

/// Makes the search end on a signal and show its progress.
void attend(SearchOptions* options, bool quiet) {
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
  options->stop = &stop_requested;
  if (!quiet) options->progress = progress_printer(apps::is_interactive());
}

SearchResult search(const WorkloadConfig& config,
                    const HardwareProfile& profile,
                    const SearchOptions& options) {
  const auto clear_line = [] {
    if (apps::is_interactive()) std::cerr << "\r\033[K";
  };
  try {
    SearchResult result = search_plan(config, profile, options);
    clear_line();
    return result;
  } catch (...) {
    clear_line();
    throw;
  }
}

void optimize(const OptimizeFlags& flags, int argc, const char* const* argv) {
  const WorkloadConfig config = apps::load_config(flags);
  apps::set_up_logging({flags.debug, flags.quiet, config.output.log_file});
  const HardwareProfile profile = apps::load_hardware(flags);
  apps::check_outputs(config);
  spdlog::info("config={} seed={} hardware={}", flags.config, config.seed, describe(profile));
  SearchOptions options = apps::search_options(flags, config, profile);
  const auto other = load_other(flags, config, profile);
  attend(&options, flags.quiet);
  SearchResult result;
  try {
    result = search(config, profile, options);
  } catch (const NoPlanFits& none) {
    if (flags.explains) explain(none.nearest(), config, profile, other);
    throw Error(ErrorKind::kInfeasible, none.message() + explain_hint(flags));
  }
  std::cout << search_report(result, config, describe(profile));
  if (flags.explains) explain(result.best, config, profile, other);
  std::cout << '\n';
  std::vector<std::string> inputs{flags.config};
  if (!flags.hw.starts_with("builtin:")) inputs.push_back(flags.hw);
  if (!flags.observed.empty()) inputs.push_back(flags.observed);
  if (!flags.lengths.empty()) inputs.push_back(flags.lengths);
  const auto provenance = apps::make_provenance("rpeg-optimize", argc, argv, inputs);
  for (const auto& path : save_results(result, config, provenance)) {
    std::cout << "wrote " << path.string() << '\n';
  }
}

/// One search for each cluster size, one table.
void sweep(const OptimizeFlags& flags) {
  WorkloadConfig config = apps::load_config(flags);
  apps::set_up_logging({flags.debug, flags.quiet, config.output.log_file});
  const HardwareProfile profile = apps::load_hardware(flags);
  std::vector<SweepRow> rows;
  std::vector<ClusterSpec> clusters;
  for (const int gpus : apps::parse_sweep(flags.sweep)) {
    clusters.push_back(scaled_cluster(config.hardware, gpus));
  }
  if (!flags.sweep_out.empty()) apps::check_writable(flags.sweep_out);
  for (const ClusterSpec& cluster : clusters) {
    config.hardware = cluster;
    SearchOptions options = apps::search_options(flags, config, profile);
    attend(&options, flags.quiet);
    SweepRow row{cluster.gpu_count(), std::nullopt, 0.0};
    spdlog::info("sweep gpus={}", row.gpus);
    try {
      const SearchResult result = search(config, profile, options);
      row.metrics = result.best.metrics;
      row.bound_s = result.bound.period_s;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInfeasible) throw;
      spdlog::info("gpus={}: {}", row.gpus, error.what());
    }
    rows.push_back(row);
    if (stop_requested) {
      spdlog::warn(
          "stopped on request: the search for {} GPUs was cut short, {} of {} sizes were "
          "not searched",
          row.gpus,
          clusters.size() - rows.size(),
          clusters.size());
      break;
    }
  }
  std::cout << sweep_report(rows, config);
  if (!flags.sweep_out.empty()) {
    write_file_atomic(flags.sweep_out, sweep_csv(rows));
    std::cout << "\nwrote " << flags.sweep_out << '\n';
  }
  const auto has_plan = [](const SweepRow& row) { return row.metrics.has_value(); };
  if (std::ranges::none_of(rows, has_plan)) {
    throw Error(ErrorKind::kInfeasible, "no plan fits on any of these clusters");
  }
}

}  // namespace

int main(int argc, char** argv) {
  return apps::run_main("rpeg-optimize", [&] {
    OptimizeFlags flags;
    if (!apps::parse_optimize_flags(argc, argv, &flags)) return;
    if (!flags.evaluate.empty()) {
      evaluate(flags);
    } else if (!flags.sweep.empty()) {
      sweep(flags);
    } else {
      optimize(flags, argc, argv);
    }
  });
}
