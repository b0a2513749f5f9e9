#pragma once

/// Module `report`: what people see of plans: tables (this header), the graph and the timeline
/// (plots.h). In: evaluations. Out: text and PDF files.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rpeg/search/search.h"

namespace rpeg {

/// The report of a search in the published layout: search statistics, structure, per-vertex plan
/// (greedy → optimal, `*` for changed rows), the metric table with both baselines, the bounds with
/// their gaps, where the time of every task goes, the critical cycle, and the best plans when more
/// than one was asked for. UTF-8, ends with a newline. `hardware` says what was
/// read, as `describe(profile)` does.
std::string search_report(const SearchResult& result,
                          const WorkloadConfig& config,
                          const std::string& hardware);

/// The same tables for one plan, without a search or baselines.
std::string plan_report(const Evaluation& evaluation,
                        const WorkloadConfig& config,
                        const std::string& hardware);

/// A plan to compare with, and what the user calls it.
struct NamedPlan {
  std::string name;
  Plan plan;
};

/// The reasons for a plan: per vertex where its time goes and how its memory is used, the critical
/// cycle with its times, and the published style that it resembles. A plan that does not fit: which
/// GPU, which bytes, and the smallest change that fits. With `other`: every decision in which the
/// two differ, and what taking it over would cost.
std::string explain_report(const Evaluation& evaluation,
                           const WorkloadConfig& config,
                           const HardwareProfile& profile,
                           const NamedPlan* other);

/// The best plan of one cluster size.
struct SweepRow {
  int gpus = 0;                        ///< of the cluster
  std::optional<PlanMetrics> metrics;  ///< nothing: no plan fits
  double bound_s = 0.0;                ///< of the space; 0: not known
};

/// One table over the cluster sizes: iteration time, tokens/s, scaling efficiency (tokens/s per GPU
/// of the cluster against the smallest cluster that has a plan), cost per million tokens when
/// GPU hours have a price, GPUs in use, gap to the bound.
std::string sweep_report(const std::vector<SweepRow>& rows, const WorkloadConfig& config);
/// The same as CSV with a header line, SI units; empty cells where there is no plan or no number.
std::string sweep_csv(const std::vector<SweepRow>& rows);

/// Writes what the configuration's `output` asks for: the greedy plan, the optimized plan (those
/// that follow it in `result.top` beside it, plan.yaml as plan.2.yaml, …), the plots (see plots.h).
/// Relative paths are relative to the current directory. Returns what was written.
std::vector<std::filesystem::path> save_results(const SearchResult& result,
                                                const WorkloadConfig& config,
                                                const Provenance& provenance);

/// One line for a terminal: elapsed/total, evaluations per second, temperature, best throughput,
/// gap to the bound of the space.
std::string progress_text(const SearchProgress& progress);

/// Shows the progress of a search: rewrites one line on the terminal (stderr), or else logs a line
/// every ten seconds.
std::function<void(const SearchProgress&)> progress_printer(bool on_terminal);

}  // namespace rpeg
