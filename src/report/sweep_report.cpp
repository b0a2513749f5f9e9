#include <fmt/format.h>

#include <vector>

#include "report/sections.h"
#include "report/table.h"
#include "rpeg/base/units.h"
#include "rpeg/report/report.h"

namespace rpeg {
namespace {

using report::Align;
using report::Table;

/// Tokens/s per GPU against the smallest cluster that has a plan.
double efficiency(const SweepRow& row, const std::vector<SweepRow>& rows) {
  const SweepRow* smallest = &row;
  for (const SweepRow& other : rows) {
    if (other.metrics && other.gpus < smallest->gpus) smallest = &other;
  }
  return row.metrics->tokens_per_s / row.gpus / (smallest->metrics->tokens_per_s / smallest->gpus);
}

}  // namespace

std::string sweep_report(const std::vector<SweepRow>& rows, const WorkloadConfig& config) {
  const bool has_price = config.hardware.gpu_hour_price.has_value();
  Table table{{"GPUs", "iteration (s)", "tokens/s", "efficiency", "active GPUs", "gap to bound"},
              std::vector<Align>(6, Align::kRight),
              {}};
  if (has_price) {
    table.header.push_back("cost per million tokens");
    table.align.push_back(Align::kRight);
  }
  for (const SweepRow& row : rows) {
    std::vector<std::string> cells{std::to_string(row.gpus)};
    if (row.metrics) {
      const PlanMetrics& m = *row.metrics;
      cells.push_back(report::seconds_text(m.iteration_time_s));
      cells.push_back(fmt::format("{:.4e}", m.tokens_per_s));
      cells.push_back(fmt::format("{:.1f}%", 100.0 * efficiency(row, rows)));
      cells.push_back(fmt::format("{:.0f}", m.active_gpus));
      cells.push_back(row.bound_s > 0.0 ? report::gap_text(m.iteration_time_s, row.bound_s) : "");
      if (has_price) cells.push_back(fmt::format("{:.4g}", m.cost_per_million_tokens.value_or(0)));
    } else {
      cells.push_back("no plan fits");
      cells.resize(table.header.size());
    }
    table.rows.push_back(std::move(cells));
  }
  return report::title_bar("Cluster sizes") +
         report::heading(
             "The best plan for each (efficiency: tokens/s per GPU against the smallest cluster "
             "that\nhas a plan)") +
         report::format_table(table, "  ");
}

std::string sweep_csv(const std::vector<SweepRow>& rows) {
  std::string text =
      "gpus,iteration_time_s,tokens_per_s,effective_tokens_per_s,efficiency,active_gpus,bound_s,"
      "cost_per_million_tokens\n";
  for (const SweepRow& row : rows) {
    if (!row.metrics) {
      text += fmt::format("{},,,,,,,\n", row.gpus);
      continue;
    }
    const PlanMetrics& m = *row.metrics;
    text += fmt::format("{},{},{},{},{},{},{},{}\n",
                        row.gpus,
                        format_exact(m.iteration_time_s),
                        format_exact(m.tokens_per_s),
                        format_exact(m.effective_tokens_per_s),
                        format_exact(efficiency(row, rows)),
                        format_exact(m.active_gpus),
                        row.bound_s > 0.0 ? format_exact(row.bound_s) : "",
                        m.cost_per_million_tokens ? format_exact(*m.cost_per_million_tokens) : "");
  }
  return text;
}

}  // namespace rpeg
