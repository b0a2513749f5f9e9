#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "rpeg/search/search.h"

namespace rpeg {

/// The graph of a plan in Graphviz' DOT language: vertices with their plan and time, edges styled
/// by kind, δ ≥ 1 as a label.
std::string graph_dot(const Evaluation& evaluation, const WorkloadConfig& config);

/// Renders DOT text to PDF. Throws kRuntime when Graphviz cannot (its PDF plugin is missing).
std::string render_dot(const std::string& dot);

/// The steady state of a plan as a timeline over a few periods, as PDF: rows are groups of GPUs
/// that exactly the same tasks use, bars are tasks, hatched bars are weights transfers.
std::string gantt_pdf(const Evaluation& evaluation,
                      const WorkloadConfig& config,
                      const std::string& title);

/// Writes graph.dot, graph.pdf, gantt_base.pdf and gantt_optimized.pdf into `directory` (made when
/// missing); returns their paths.
std::vector<std::filesystem::path> write_plots(const SearchResult& result,
                                               const WorkloadConfig& config,
                                               const std::filesystem::path& directory);

}  // namespace rpeg
