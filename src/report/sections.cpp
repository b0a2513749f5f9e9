#include "report/sections.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "report/table.h"
#include "rpeg/base/units.h"
#include "rpeg/graph/graph.h"

namespace rpeg::report {
namespace {

constexpr std::size_t kWidth = 90;
const std::string kIndent = "  ";

/// "a -> b", or "a" when both are equal.
std::string change(const std::string& base, const std::string& now) {
  return base == now ? now : base + " -> " + now;
}

}  // namespace

std::string title_bar(const std::string& title) {
  const std::string bar = report::rule("═", kWidth) + "\n";
  return bar + kIndent + title + "\n" + bar;
}

std::string heading(const std::string& text) { return "\n" + text + "\n"; }

std::string entry(const std::string& name, const std::string& value) {
  return fmt::format("{}{:<13} {}\n", kIndent, name, value);
}

std::string paragraph(const std::string& text) {
  std::istringstream words(text);
  std::string result;
  std::string line;
  for (std::string word; words >> word;) {
    if (!line.empty() && display_width(line) + 1 + display_width(word) > kWidth - kIndent.size()) {
      result += kIndent + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return line.empty() ? result : result + kIndent + line + "\n";
}

std::string split_text(const Parallelism& split) {
  return fmt::format("({},{},{})", split.dp, split.pp, split.tp);
}

std::string seconds_text(double seconds) {
  return seconds < 1e-9 ? "0" : fmt::format("{:.4g}", seconds);
}

std::string structure_text(const Structure& structure, const WorkloadConfig& config) {
  std::vector<std::string> cuts;
  for (std::size_t i = 0; i + 1 < config.workload.gen_quantiles.size(); ++i) {
    if ((structure.cuts >> i & 1U) == 0) continue;
    cuts.push_back(fmt::format("{:.4g}", config.workload.gen_quantiles[i].probability));
  }
  std::string text = heading("Structure");
  text += entry("ac_share", structure.ac_share ? "True" : "False");
  text += entry("tau", fmt::format("{{Pi:{}, V:{}}}", structure.tau_actor, structure.tau_critic));
  text += entry("cuts", fmt::format("[{}]", fmt::join(cuts, ", ")));
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
  Table table{{"task", "GPUs", "start (s)", "compute", "comm", "bubble", "total", "wait", "memory"},
              {Align::kLeft,
               Align::kRight,
               Align::kRight,
               Align::kRight,
               Align::kRight,
               Align::kRight,
               Align::kRight,
               Align::kRight,
               Align::kRight},
              {}};
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
  return heading("Where the time goes (seconds per iteration; wait: its GPUs idle before it)") +
         format_table(table, kIndent);
}

std::string critical_text(const Evaluation& evaluation) {
  std::vector<std::string> names;
  for (const std::int32_t task : evaluation.steady.critical_cycle) {
    names.push_back(evaluation.priced.tasks.tasks[static_cast<std::size_t>(task)].name);
  }
  // A cycle has no first task: start with the one that leads the period.
  for (const std::int32_t leader : evaluation.steady.order) {
    const auto& name = evaluation.priced.tasks.tasks[static_cast<std::size_t>(leader)].name;
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) continue;
    std::rotate(names.begin(), found, names.end());
    break;
  }
  return heading("Critical cycle (shorten one of these to go faster)") + kIndent +
         fmt::format("{}\n", fmt::join(names, " -> "));
}

}  // namespace rpeg::report
