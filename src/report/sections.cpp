#include "report/sections.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "report/table.h"
#include "rpeg/base/units.h"
#include "rpeg/graph/graph.h"
#include "rpeg/plan/plan_text.h"

namespace rpeg::report {
namespace {

constexpr std::size_t kWidth = 90;
const std::string kIndent = "  ";

/// "a -> b", or "a" when both are equal.
std::string change(const std::string& base, const std::string& now) {
  return base == now ? now : base + " -> " + now;
}

/// Lines of at most the width of the title bar, each behind `indent` blanks.
std::string wrapped(const std::string& text, std::size_t indent) {
  const std::string blanks(indent, ' ');
  std::istringstream words(text);
  std::string result;
  std::string line;
  for (std::string word; words >> word;) {
    if (!line.empty() && indent + display_width(line) + 1 + display_width(word) > kWidth) {
      result += blanks + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return result + blanks + line + "\n";
}

}  // namespace

std::string title_bar(const std::string& title) {
  const std::string bar = report::rule("═", kWidth) + "\n";
  return bar + kIndent + title + "\n" + bar;
}

std::string heading(const std::string& text) { return "\n" + text + "\n"; }

std::string entry(const std::string& name, const std::string& value) {
  constexpr std::size_t kNameWidth = 13;
  const std::size_t indent = kIndent.size() + kNameWidth + 1;
  const std::string first = fmt::format("{}{:<{}} ", kIndent, name, kNameWidth);
  return first + wrapped(value, indent).substr(indent);
}

std::string paragraph(const std::string& text) { return wrapped(text, kIndent.size()); }

std::string seconds_text(double seconds) {
  return seconds < 1e-9 ? "0" : fmt::format("{:.4g}", seconds);
}

std::string gap_text(double period_s, double bound_s) {
  // Starts are whole nanoseconds: a plan at its bound may lie below it by rounding.
  return fmt::format("{:.1f}%", std::max(0.0, 100.0 * (period_s / bound_s - 1.0)));
}

std::string structure_text(const Structure& structure, const WorkloadConfig& config) {
  std::string text = heading("Structure");
  text += entry("ac_share", structure.ac_share ? "True" : "False");
  text += entry("tau", fmt::format("{{Pi:{}, V:{}}}", structure.tau_actor, structure.tau_critic));
  text += entry("cuts", cuts_text(structure, config.workload));
  return text;
}

std::string vertices_text(const Plan& base, const Plan& now, const WorkloadConfig& config) {
  Table table{{"", "vertex", "parallelism (dp,pp,tp)", "mb", "placement (rack, nodes, gpus)"},
              {Align::kLeft, Align::kLeft, Align::kLeft, Align::kRight, Align::kLeft},
              {}};
  const Graph before = build_graph(config.policy, base.structure);
  const Graph graph = build_graph(config.policy, now.structure);
  for (std::size_t v = 0; v < now.vertices.size(); ++v) {
    const std::string& name = graph.vertices[v].name;
    VertexId same = find_vertex(before, name);
    if (same == VertexId{-1}) same = find_vertex(before, name == "t_pi" ? "t_piV" : "t_pi");
    const VertexPlan& b = now.vertices[v];
    const VertexPlan& a = same == VertexId{-1} ? b : base.vertices[index(same)];
    const bool is_new = find_vertex(before, name) == VertexId{-1};
    table.rows.push_back({a == b && !is_new ? "" : "*",
                          name,
                          change(split_text(a.parallelism), split_text(b.parallelism)),
                          change(std::to_string(a.micro_batches), std::to_string(b.micro_batches)),
                          change(placement_text(a.placement), placement_text(b.placement))});
  }
  return format_table(table, "");
}

std::string breakdown_text(const Evaluation& evaluation) {
  Table table = names_and_numbers(
      {"task", "GPUs", "start (s)", "compute", "comm", "bubble", "total", "wait", "memory"});
  const TaskGraph& graph = evaluation.priced.tasks;
  const std::vector<double> idle = idle_before(graph, evaluation.steady);
  for (const std::int32_t task : evaluation.steady.order) {
    const auto id = static_cast<std::size_t>(task);
    const TaskTime& time = graph.tasks[id].time;
    const std::int32_t vertex = graph.tasks[id].vertex;
    const auto& memory = evaluation.priced.memory;
    table.rows.push_back(
        {graph.tasks[id].name,
         fmt::format("{:.0f}", graph.tasks[id].gpus),
         seconds_text(evaluation.steady.start_s[id]),
         seconds_text(time.compute_s),
         seconds_text(time.comm_s),
         seconds_text(time.bubble_s),
         seconds_text(time.total_s),
         seconds_text(idle[id]),
         vertex >= 0 ? format_bytes(memory[static_cast<std::size_t>(vertex)].total) : ""});
  }
  return heading(
             "Where the time goes (seconds per iteration, in the order of the period; start: since "
             "the first\ntask of its own iteration; wait: its GPUs idle before it)") +
         format_table(table, kIndent);
}

std::vector<std::size_t> critical_tasks(const Evaluation& evaluation) {
  std::vector<std::size_t> tasks(evaluation.steady.critical_cycle.begin(),
                                 evaluation.steady.critical_cycle.end());
  // A cycle has no first task: start with the one that leads the period.
  for (const std::int32_t leader : evaluation.steady.order) {
    const auto found = std::ranges::find(tasks, static_cast<std::size_t>(leader));
    if (found == tasks.end()) continue;
    std::rotate(tasks.begin(), found, tasks.end());
    break;
  }
  return tasks;
}

std::string critical_text(const Evaluation& evaluation) {
  std::vector<std::string> names;
  for (const std::size_t task : critical_tasks(evaluation)) {
    names.push_back(evaluation.priced.tasks.tasks[task].name);
  }
  return heading("Critical cycle (shorten one of these to go faster)") +
         paragraph(fmt::format("{}", fmt::join(names, " → ")));
}

}  // namespace rpeg::report
