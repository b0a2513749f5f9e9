#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "report/sections.h"
#include "report/table.h"
#include "rpeg/base/units.h"
#include "rpeg/graph/graph.h"
#include "rpeg/report/report.h"
#include "rpeg/search/explain.h"

namespace rpeg {
namespace {

using report::Align;
using report::heading;
using report::paragraph;
using report::seconds_text;
using report::Table;

std::string percent_text(double part, double whole) {
  return whole > 0.0 ? fmt::format("{:.1f}%", 100.0 * part / whole) : "";
}

/// Time of a vertex, all stages together, or of a transfer.
struct Spent {
  std::string name;
  TaskTime time;
  double wait_s = 0.0;
};

std::vector<Spent> spend(const Evaluation& evaluation, const Graph& graph) {
  std::vector<Spent> spent(graph.vertices.size());
  for (std::size_t v = 0; v < spent.size(); ++v) spent[v].name = graph.vertices[v].name;
  const TaskGraph& tasks = evaluation.priced.tasks;
  const std::vector<double> idle = idle_before(tasks, evaluation.steady);
  for (std::size_t id = 0; id < tasks.tasks.size(); ++id) {
    const std::int32_t vertex = tasks.tasks[id].vertex;
    if (vertex < 0) spent.push_back({tasks.tasks[id].name, {}, 0.0});
    Spent& now = vertex < 0 ? spent.back() : spent[static_cast<std::size_t>(vertex)];
    const TaskTime& time = tasks.tasks[id].time;
    now.time.compute_s += time.compute_s;
    now.time.comm_s += time.comm_s;
    now.time.bubble_s += time.bubble_s;
    now.time.total_s += time.total_s;
    now.wait_s += idle[id];
  }
  return spent;
}

std::string time_text(const Evaluation& evaluation, const Graph& graph) {
  Table table = report::names_and_numbers({"vertex",
                                           "time (s)",
                                           "of iteration",
                                           "compute",
                                           "comm",
                                           "bubble",
                                           "wait (s)",
                                           "on critical cycle"});
  const std::vector<double> critical = critical_shares(evaluation);
  const std::vector<Spent> spent = spend(evaluation, graph);
  for (std::size_t i = 0; i < spent.size(); ++i) {
    const TaskTime& time = spent[i].time;
    table.rows.push_back({spent[i].name,
                          seconds_text(time.total_s),
                          percent_text(time.total_s, evaluation.steady.period_s),
                          percent_text(time.compute_s, time.total_s),
                          percent_text(time.comm_s, time.total_s),
                          percent_text(time.bubble_s, time.total_s),
                          seconds_text(spent[i].wait_s),
                          i < critical.size() ? percent_text(critical[i], 1.0) : ""});
  }
  return heading(
             "Where each vertex spends its time (all stages; a transfer's share of the critical "
             "cycle\ncounts half for either end)") +
         report::format_table(table, "  ");
}

/// The critical cycle with its times: Σ duration / Σ δ is the iteration time.
std::string cycle_text(const Evaluation& evaluation) {
  double sum_s = 0.0;
  std::vector<std::string> steps;
  for (const std::size_t id : report::critical_tasks(evaluation)) {
    const TimedTask& task = evaluation.priced.tasks.tasks[id];
    sum_s += task.time.total_s;
    steps.push_back(fmt::format("{} {}", task.name, format_seconds(task.time.total_s)));
  }
  const double iterations = std::round(sum_s / evaluation.steady.period_s);
  return heading("What sets the pace") +
         paragraph(fmt::format("{}: together {} in {:.0f} iteration{}, so {} per iteration.",
                               fmt::join(steps, " → "),
                               format_seconds(sum_s),
                               iterations,
                               iterations > 1.0 ? "s" : "",
                               format_seconds(evaluation.steady.period_s))) +
         paragraph("Shortening anything outside this cycle alone gains nothing.");
}

std::string memory_text(const Evaluation& evaluation, const Graph& graph) {
  Table table = report::names_and_numbers({"vertex",
                                           "weights",
                                           "optimizer",
                                           "activations",
                                           "KV cache",
                                           "logits",
                                           "reserve",
                                           "total",
                                           "of limit"});
  const double limit = evaluation.priced.limit_bytes;
  for (std::size_t v = 0; v < graph.vertices.size(); ++v) {
    const MemoryUse& use = evaluation.priced.memory[v];
    std::vector<std::string> row{graph.vertices[v].name};
    for (const double bytes : {use.weights,
                               use.optimizer,
                               use.activations,
                               use.kv_cache,
                               use.logits,
                               use.reserve,
                               use.total}) {
      row.push_back(bytes > 0.0 ? format_bytes(bytes) : "-");
    }
    row.push_back(percent_text(use.total, limit));
    table.rows.push_back(std::move(row));
  }
  return heading(fmt::format("Memory of the fullest GPU of each block (limit {} per GPU)",
                             format_bytes(limit))) +
         report::format_table(table, "  ");
}

std::string misfit_text(const Evaluation& evaluation,
                        const WorkloadConfig& config,
                        const HardwareProfile& profile) {
  std::string text = heading("Why it does not fit") + paragraph(evaluation.priced.overflow_text);
  const Relief relief = smallest_relief(evaluation.plan, config, profile);
  if (relief.change.empty()) {
    return text + paragraph("No change of a single decision makes it fit better.");
  }
  if (relief.overflow > 0.0) {
    return text +
           paragraph(fmt::format("No change of a single decision makes it fit. The one that helps "
                                 "most: {}. It leaves {:.1f} % of the overflow.",
                                 relief.change,
                                 100.0 * relief.overflow / evaluation.priced.overflow));
  }
  return text + paragraph(fmt::format("The smallest change that fits: {}. An iteration then takes "
                                      "{} instead of {}.",
                                      relief.change,
                                      format_seconds(relief.period_s),
                                      format_seconds(evaluation.steady.period_s)));
}

std::string compare_text(const Evaluation& evaluation,
                         const NamedPlan& other,
                         const WorkloadConfig& config,
                         const HardwareProfile& profile) {
  const double own_s = evaluation.steady.period_s;
  const Evaluation there = evaluate_plan(other.plan, config, profile);
  const auto differences = compare_plans(evaluation.plan, other.plan, config, profile);
  std::string text = heading("Against " + other.name);
  if (differences.empty()) return text + paragraph("It is the same plan.");
  text += paragraph(fmt::format("{} takes {} per iteration, this plan {} ({:+.1f} %).{}",
                                other.name,
                                format_seconds(there.steady.period_s),
                                format_seconds(own_s),
                                100.0 * (own_s / there.steady.period_s - 1.0),
                                there.fits() ? "" : " " + there.priced.overflow_text));
  Table table{{"effect (s)", "effect", "decision of this plan -> of the other", ""},
              {Align::kRight, Align::kRight, Align::kLeft, Align::kLeft},
              {}};
  for (const Difference& difference : differences) {
    // A plan that does not fit is slow for want of a cache; its time says nothing beside one that
    // fits.
    const bool has_effect = difference.valid && (difference.fits || !evaluation.fits());
    table.rows.push_back(
        {has_effect ? fmt::format("{:+.4g}", difference.effect_s) : "-",
         has_effect ? fmt::format("{:+.1f}%", 100.0 * difference.effect_s / own_s) : "-",
         difference.what,
         !difference.valid  ? "only together with others"
         : !difference.fits ? "does not fit"
                            : ""});
  }
  text += paragraph(
      "Each row changes this one decision of this plan and nothing else; above 0, the "
      "decision of this plan is the better one. Effects do not add up.");
  return text + report::format_table(table, "  ");
}

}  // namespace

std::string explain_report(const Evaluation& evaluation,
                           const WorkloadConfig& config,
                           const HardwareProfile& profile,
                           const NamedPlan* other) {
  const Graph graph = build_graph(config.policy, evaluation.plan.structure);
  std::string text = report::title_bar("Reasons");
  if (!evaluation.fits()) text += misfit_text(evaluation, config, profile);
  text += time_text(evaluation, graph);
  text += cycle_text(evaluation);
  text += memory_text(evaluation, graph);
  if (evaluation.fits()) {
    text += heading("What it resembles") + paragraph(resemblance(evaluation, config, profile));
  }
  if (other != nullptr) text += compare_text(evaluation, *other, config, profile);
  return text;
}

}  // namespace rpeg
