#pragma once

/// Module `report`: what people see of plans: tables (this header), the graph and the timeline
/// (plots.h). In: evaluations. Out: text and PDF files.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "rpeg/search/search.h"

namespace rpeg {

/// The report of a search in the published layout: search statistics, structure, per-vertex plan
/// (greedy → optimal, `*` for changed rows), the metric table with both baselines, where the time
/// of every task goes, the critical cycle. UTF-8, ends with a newline. `hardware` says what was
/// read, as `describe(profile)` does.
std::string search_report(const SearchResult& result,
                          const WorkloadConfig& config,
                          const std::string& hardware);

/// The same tables for one plan, without a search or baselines.
std::string plan_report(const Evaluation& evaluation,
                        const WorkloadConfig& config,
                        const std::string& hardware);

/// Writes what the configuration's `output` asks for: the greedy plan, the optimized plan, the
/// plots (see plots.h). Relative paths are relative to the current directory. Returns what was
/// written.
std::vector<std::filesystem::path> save_results(const SearchResult& result,
                                                const WorkloadConfig& config,
                                                const Provenance& provenance);

/// One line for a terminal: elapsed/total, evaluations per second, temperature, best throughput.
std::string progress_text(const SearchProgress& progress);

/// Shows the progress of a search: rewrites one line on the terminal (stderr), or else logs a line
/// every ten seconds.
std::function<void(const SearchProgress&)> progress_printer(bool on_terminal);

}  // namespace rpeg
