#include "rpeg/report/report.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <utility>
#include <vector>

#include "report/table.h"
#include "rpeg/base/file.h"
#include "rpeg/base/units.h"
#include "rpeg/graph/graph.h"
#include "rpeg/report/plots.h"

namespace rpeg {
namespace {

using report::Align;
using report::format_table;
using report::Table;

constexpr std::size_t kWidth = 90;
const std::string kIndent = "  ";

std::string title_bar(const std::string& title) {
  const std::string bar = report::rule("═", kWidth) + "\n";
  return bar + kIndent + title + "\n" + bar;
}

std::string heading(const std::string& text) { return "\n" + text + "\n"; }

std::string entry(const std::string& name, const std::string& value) {
  return fmt::format("{}{:<13} {}\n", kIndent, name, value);
}

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
      return text + "; ended early, the best plan attains the bound of the space";
    case SearchEnd::kStalled:
      return text + "; ended early, no chain improved for a third of the budget";
    case SearchEnd::kExhausted:
      return text + "; every plan was tried";
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
  text += entry("evaluations",
                fmt::format("{} in {} chains with {} warm restarts, {:.0f}/s",
                            statistics.evaluations,
                            statistics.chains,
                            statistics.restarts,
                            speed));
  text += entry("budget", budget_text(statistics));
  return text;
}

std::string structure_text(const Structure& structure) {
  std::string text = heading("Structure");
  // Sharing is not searched in this version: actor and critic are always apart.
  text += entry("ac_share", "False");
  text += entry("tau", fmt::format("{{Pi:{}, V:{}}}", structure.tau_actor, structure.tau_critic));
  return text;
}

std::string split_text(const Parallelism& split) {
  return fmt::format("({},{},{})", split.dp, split.pp, split.tp);
}

/// "a -> b", or "a" when both are equal.
std::string change(const std::string& base, const std::string& now) {
  return base == now ? now : base + " -> " + now;
}

std::string vertices_text(const Plan& base, const Plan& now, const Graph& graph) {
  Table table{{"", "vertex", "parallelism (dp,pp,tp)", "mb", "placement (rack, nodes, gpus)"},
              {Align::kLeft, Align::kLeft, Align::kLeft, Align::kRight, Align::kLeft},
              {}};
  for (std::size_t v = 0; v < now.vertices.size(); ++v) {
    const VertexPlan& a = base.vertices[v];
    const VertexPlan& b = now.vertices[v];
    table.rows.push_back({a == b ? "" : "*",
                          graph.vertices[v].name,
                          change(split_text(a.parallelism), split_text(b.parallelism)),
                          change(std::to_string(a.micro_batches), std::to_string(b.micro_batches)),
                          change(placement_text(a.placement), placement_text(b.placement))});
  }
  return format_table(table, "");
}

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

std::string metrics_text(const SearchResult& result, const WorkloadConfig& config) {
  Table table{{"Metric", "Greedy", "Conc. Heuristic", "Optimized", "Δ (vs greedy)"},
              {Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight},
              {}};
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

std::string memory_note(const char* name, const Evaluation& evaluation) {
  return evaluation.fits()
             ? ""
             : fmt::format("{} does not fit: {}\n", name, evaluation.priced.overflow_text);
}

/// Where the time of every task goes, in the order of the period.
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
  // Below a nanosecond there is only rounding.
  const auto seconds = [](double value) {
    return value < 1e-9 ? "0" : fmt::format("{:.4g}", value);
  };
  for (const std::int32_t task : evaluation.steady.order) {
    const auto id = static_cast<std::size_t>(task);
    const TaskTime& time = graph.tasks[id].time;
    const auto& memory = evaluation.priced.memory;
    const std::int32_t vertex = graph.tasks[id].vertex;
    table.rows.push_back(
        {graph.tasks[id].name,
         fmt::format("{:.0f}", graph.tasks[id].gpus),
         seconds(evaluation.steady.start_s[id]),
         seconds(time.compute_s),
         seconds(time.comm_s),
         seconds(time.bubble_s),
         seconds(time.total_s),
         seconds(idle[id]),
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

}  // namespace

std::string search_report(const SearchResult& result,
                          const WorkloadConfig& config,
                          const std::string& hardware) {
  const Graph graph = build_graph(config.policy, result.best.plan.structure);
  std::string text = title_bar("Results");
  text += statistics_text(result.statistics, hardware);
  text += structure_text(result.best.plan.structure);
  text += heading("Per-vertex plan (base → optimal):");
  text += vertices_text(result.greedy.plan, result.best.plan, graph);
  text += metrics_text(result, config);
  text += memory_note("Greedy", result.greedy);
  text += memory_note("Conc. Heuristic", result.concurrent);
  text += breakdown_text(result.best);
  text += critical_text(result.best);
  return text;
}

std::string plan_report(const Evaluation& evaluation,
                        const WorkloadConfig& config,
                        const std::string& hardware) {
  const Graph graph = build_graph(config.policy, evaluation.plan.structure);
  std::string text = title_bar("Evaluation");
  text += heading("Inputs") + entry("hardware", hardware);
  text += structure_text(evaluation.plan.structure);
  text += heading("Per-vertex plan:");
  text += vertices_text(evaluation.plan, evaluation.plan, graph);
  Table table{{"Metric", "Plan"}, {Align::kLeft, Align::kRight}, {}};
  for (const MetricRow& row : metric_rows(config)) {
    table.rows.push_back({row.name, row.print(row.number(evaluation.metrics))});
  }
  text += "\n" + format_table(table, "");
  text += memory_note("The plan", evaluation);
  text += breakdown_text(evaluation);
  text += critical_text(evaluation);
  return text;
}

std::vector<std::filesystem::path> save_results(const SearchResult& result,
                                                const WorkloadConfig& config,
                                                const Provenance& provenance) {
  std::vector<std::filesystem::path> paths;
  const auto save = [&](const std::string& path, const Evaluation& evaluation) {
    if (path.empty()) return;
    write_file_atomic(path, plan_file_text(make_plan_file(evaluation, config), &provenance));
    paths.emplace_back(path);
  };
  save(config.output.base_plan, result.greedy);
  save(config.output.opt_plan, result.best);
  if (config.output.plots) {
    const std::string& directory = config.output.plots_dir;
    for (auto& path : write_plots(result, config, directory.empty() ? "plots" : directory)) {
      paths.push_back(std::move(path));
    }
  }
  return paths;
}

std::string progress_text(const SearchProgress& progress) {
  const double speed = progress.elapsed_s > 0.0
                           ? static_cast<double>(progress.evaluations) / progress.elapsed_s
                           : 0.0;
  const std::string of = progress.total_s > 0.0 ? fmt::format("/{:.0f}s", progress.total_s) : "s";
  const std::string best = progress.tokens_per_s > 0.0
                               ? fmt::format("{:.4e} tokens/s", progress.tokens_per_s)
                               : std::string("no plan fits yet");
  return fmt::format("{:.1f}{}  {}/{} evaluations  {:.0f}/s  T={:.4f}  best {}",
                     progress.elapsed_s,
                     of,
                     progress.evaluations,
                     progress.total_evaluations,
                     speed,
                     progress.temperature,
                     best);
}

std::function<void(const SearchProgress&)> progress_printer(bool on_terminal) {
  return [on_terminal, next_log_s = 10.0](const SearchProgress& progress) mutable {
    const std::string text = progress_text(progress);
    if (on_terminal) std::cerr << "\r\033[K" << text << std::flush;
    if (progress.elapsed_s < next_log_s) return;
    next_log_s = progress.elapsed_s + 10.0;
    spdlog::log(on_terminal ? spdlog::level::debug : spdlog::level::info, "search {}", text);
  };
}

}  // namespace rpeg
