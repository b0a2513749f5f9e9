#include "report/metrics.h"

#include <fmt/format.h>

#include <functional>
#include <vector>

#include "report/sections.h"
#include "report/table.h"
#include "rpeg/base/units.h"

namespace rpeg::report {
namespace {

using Number = std::function<double(const PlanMetrics&)>;
using Printer = std::function<std::string(double)>;

struct MetricRow {
  std::string name;
  Number number;
  Printer print;
  bool has_delta = false;
};

std::string scientific(double value) { return fmt::format("{:.4e}", value); }

std::string peta(double value) {
  return value >= 1e-3 ? fmt::format("{:.4f}", value) : scientific(value);
}

/// The published rows, then ours.
std::vector<MetricRow> metric_rows(const WorkloadConfig& config) {
  using M = const PlanMetrics&;
  const auto share = [](double value) { return fmt::format("{:.1f}%", 100.0 * value); };
  const auto whole = [](double value) { return fmt::format("{:.0f}", value); };
  std::vector<MetricRow> rows{
      {"Throughput (tokens/s)", [](M m) { return m.tokens_per_s; }, scientific, true},
      {"Makespan (s)", [](M m) { return m.iteration_time_s; }, scientific},
      {"Throughput (PFLOP/s)", [](M m) { return m.flop_per_s / 1e15; }, peta, true},
      {"GPU utilization", [](M m) { return m.gpu_utilization; }, share},
      {"Active GPUs", [](M m) { return m.active_gpus; }, whole},
      {"Effective tokens/s", [](M m) { return m.effective_tokens_per_s; }, scientific, true},
      {"Peak memory per GPU", [](M m) { return m.peak_bytes; }, format_bytes}};
  if (config.hardware.gpu_hour_price) {
    rows.push_back({"Cost per million tokens",
                    [](M m) { return m.cost_per_million_tokens.value_or(0.0); },
                    [](double value) { return fmt::format("{:.4g}", value); },
                    true});
  }
  return rows;
}

std::string metric_cell(const MetricRow& row, const Evaluation& evaluation) {
  return evaluation.fits() ? row.print(row.number(evaluation.metrics)) : "infeasible";
}

}  // namespace

std::string metrics_text(const SearchResult& result, const WorkloadConfig& config) {
  Table table =
      names_and_numbers({"Metric", "Greedy", "Conc. Heuristic", "Optimized", "Δ (vs greedy)"});
  for (const MetricRow& row : metric_rows(config)) {
    const double greedy = row.number(result.greedy.metrics);
    const double gain = row.number(result.best.metrics) / greedy - 1.0;
    const bool has_delta = row.has_delta && result.greedy.fits() && greedy > 0.0;
    table.rows.push_back({row.name,
                          metric_cell(row, result.greedy),
                          metric_cell(row, result.concurrent),
                          metric_cell(row, result.best),
                          has_delta ? fmt::format("{:+.1f}%", 100.0 * gain) : ""});
  }
  return "\n" + format_table(table, "");
}

std::string metrics_text(const Evaluation& evaluation, const WorkloadConfig& config) {
  Table table = names_and_numbers({"Metric", "Plan"});
  for (const MetricRow& row : metric_rows(config)) {
    table.rows.push_back({row.name, row.print(row.number(evaluation.metrics))});
  }
  return "\n" + format_table(table, "");
}

std::string memory_note(const char* name, const Evaluation& evaluation) {
  if (evaluation.fits()) return "";
  return paragraph(fmt::format("{} does not fit: {}", name, evaluation.priced.overflow_text));
}

}  // namespace rpeg::report
