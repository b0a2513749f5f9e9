#include "rpeg/report/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "report/metrics.h"
#include "report/sections.h"
#include "report/table.h"
#include "rpeg/search/explain.h"

namespace rpeg {
namespace {

using report::Align;
using report::entry;
using report::heading;
using report::Table;

double percent(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

/// How the search was limited and why it ended, where there is something to say.
std::string budget_text(const SearchStatistics& statistics) {
  std::string text;
  if (statistics.budget_is_default) {
    text = fmt::format(
        "{} evaluations by default (neither --evals nor --time nor "
        "optimizer.evals given)",
        statistics.budget);
  } else if (statistics.budget_from_time) {
    text = fmt::format("{} evaluations, derived from the time and the measured speed",
                       statistics.budget);
  } else {
    text = fmt::format("{} evaluations", statistics.budget);
  }
  switch (statistics.end) {
    case SearchEnd::kBudget:
      return statistics.budget_from_time
                 ? text + fmt::format("; --evals {} repeats this search", statistics.budget)
                 : text;
    case SearchEnd::kTime:
      return text + "; the time was over first";
    case SearchEnd::kStopped:
      return text + "; stopped on request, the best plan so far follows";
    case SearchEnd::kNoNeighbours:
      return text + "; ended early, the space has no other plan to move to";
    case SearchEnd::kBound:
      return text +
             "; ended early, the best plan attains the bound of the space: no plan is better";
    case SearchEnd::kStalled:
      return text + "; ended early, no chain improved for a third of the budget";
    case SearchEnd::kExhausted:
      return "every plan was tried: no plan is better";
  }
  return text;
}

std::string statistics_text(const SearchStatistics& statistics, const std::string& hardware) {
  const double speed = statistics.wall_s > 0.0
                           ? static_cast<double>(statistics.evaluations) / statistics.wall_s
                           : 0.0;
  std::string text = heading("Search statistics");
  text += entry("hardware", hardware);
  text += entry("wall time", fmt::format("{:.1f}s", statistics.wall_s));
  text += entry("cache",
                fmt::format("hits={} misses={} ({:.1f}%)",
                            statistics.hits,
                            statistics.misses,
                            percent(statistics.hits, statistics.evaluations)));
  if (statistics.chains > 0) {
    text += entry("evaluations",
                  fmt::format("{} in {} chains with {} warm restarts, {:.0f}/s",
                              statistics.evaluations,
                              statistics.chains,
                              statistics.restarts,
                              speed));
  } else {
    text += entry("evaluations", fmt::format("{}, {:.0f}/s", statistics.evaluations, speed));
    text += entry("space",
                  fmt::format("{:.0f} plans, of which symmetry leaves {:.0f}",
                              statistics.space_plans,
                              statistics.distinct_plans));
  }
  text += entry("budget", budget_text(statistics));
  return text;
}

/// How much better any plan could be; `space` is null when only one plan is looked at.
std::string bounds_text(const Evaluation& evaluation,
                        const SpaceBound* space,
                        const WorkloadConfig& config) {
  const double period_s = evaluation.steady.period_s;
  const double own_s = plan_bound_s(evaluation.priced.tasks);
  std::string text = heading("Bounds (no iteration time can be below; gap: how far this plan is)");
  text += entry("this plan",
                fmt::format("{} s, gap {}: its work on the busiest GPUs, its longest cycle",
                            report::seconds_text(own_s),
                            report::gap_text(period_s, own_s)));
  if (space == nullptr || space->period_s <= 0.0) return text;
  text += entry("any plan",
                fmt::format("{} s, gap {}: {}{}",
                            report::seconds_text(space->period_s),
                            report::gap_text(period_s, space->period_s),
                            space->reason,
                            config.optimizer.objective == Objective::kCost
                                ? "; a bound of time, while the search looked for the least cost"
                                : ""));
  return text;
}

/// The best distinct plans, and in what they differ from the best, a decision a line.
std::string top_text(const SearchResult& result, const WorkloadConfig& config) {
  if (result.top.size() < 2) return "";
  Table table{{"rank", "iteration (s)", "vs best", "GPUs", "instead of the best plan's"},
              {Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kLeft},
              {}};
  const double best_s = result.top.front().steady.period_s;
  for (std::size_t i = 0; i < result.top.size(); ++i) {
    const Evaluation& evaluation = result.top[i];
    const double period_s = evaluation.steady.period_s;
    const auto differences = plan_differences(result.top.front().plan, evaluation.plan, config);
    table.rows.push_back({std::to_string(i + 1),
                          report::seconds_text(period_s),
                          fmt::format("{:+.2f}%", 100.0 * (period_s / best_s - 1.0)),
                          fmt::format("{:.0f}", evaluation.metrics.active_gpus),
                          differences.empty() ? "" : differences.front()});
    for (std::size_t d = 1; d < differences.size(); ++d) {
      table.rows.push_back({"", "", "", "", differences[d]});
    }
  }
  return heading(fmt::format("The best {} plans", result.top.size())) +
         report::format_table(table, "  ");
}

}  // namespace

std::string search_report(const SearchResult& result,
                          const WorkloadConfig& config,
                          const std::string& hardware) {
  std::string text = report::title_bar("Results");
  text += statistics_text(result.statistics, hardware);
  text += report::structure_text(result.best.plan.structure, config);
  text += heading("Per-vertex plan (base → optimal):");
  text += report::vertices_text(result.greedy.plan, result.best.plan, config);
  text += report::metrics_text(result, config);
  text += report::memory_note("Greedy", result.greedy);
  text += report::memory_note("Conc. Heuristic", result.concurrent);
  text += bounds_text(result.best, &result.bound, config);
  text += report::breakdown_text(result.best);
  text += report::critical_text(result.best);
  text += top_text(result, config);
  return text;
}

std::string plan_report(const Evaluation& evaluation,
                        const WorkloadConfig& config,
                        const std::string& hardware) {
  std::string text = report::title_bar("Evaluation");
  text += heading("Inputs") + entry("hardware", hardware);
  text += report::structure_text(evaluation.plan.structure, config);
  text += heading("Per-vertex plan:");
  text += report::vertices_text(evaluation.plan, evaluation.plan, config);
  text += report::metrics_text(evaluation, config);
  text += report::memory_note("The plan", evaluation);
  text += bounds_text(evaluation, nullptr, config);
  text += report::breakdown_text(evaluation);
  text += report::critical_text(evaluation);
  return text;
}

}  // namespace rpeg
