#include "rpeg/search/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "rpeg/base/error.h"
#include "rpeg/graph/graph.h"
#include "rpeg/plan/cells.h"

namespace rpeg {
namespace {

constexpr double kRounding_s = 2e-9;  // starts are whole nanoseconds: less is rounding

PlanMetrics measure(const Evaluation& evaluation,
                    const Graph& graph,
                    const WorkloadConfig& config) {
  PlanMetrics metrics;
  const double period = evaluation.steady.period_s;
  check(period > 0.0, "an iteration takes time");
  metrics.iteration_time_s = period;
  const double tokens =
      tokens_per_iteration(config, static_cast<double>(config.workload.generation_length));
  metrics.tokens_per_s = tokens / period;
  metrics.effective_tokens_per_s =
      tokens_per_iteration(config, expected_length(config.workload)) / period;
  for (const Vertex& vertex : graph.vertices) {
    metrics.flop_per_s += vertex_model_flop(vertex, config) / period;
  }
  metrics.active_gpus = static_cast<double>(active_gpu_count(evaluation.plan));
  double busy = 0.0;
  for (const TimedTask& task : evaluation.priced.tasks.tasks) {
    for (const std::int32_t atom : task.atoms) {
      busy += evaluation.priced.tasks.atom_gpus[static_cast<std::size_t>(atom)] *
              std::min(task.time.total_s, kLongestTask_s);
    }
  }
  metrics.gpu_utilization = busy / (metrics.active_gpus * period);
  metrics.peak_bytes = evaluation.priced.peak_bytes;
  if (config.hardware.gpu_hour_price) {
    const double money = *config.hardware.gpu_hour_price * metrics.active_gpus * period / 3600.0;
    metrics.cost_per_million_tokens = money / tokens * 1e6;
  }
  return metrics;
}

}  // namespace

double tokens_per_iteration(const WorkloadConfig& config, double response_tokens) {
  const WorkloadSpec& workload = config.workload;
  const bool pairs = config.policy.algorithm == Algorithm::kDpo;
  const auto sequences =
      static_cast<double>(pairs ? 2 * workload.batch_size : workload.sequences());
  return sequences * (static_cast<double>(workload.context_length) + response_tokens);
}

Evaluation evaluate_plan(const Plan& plan,
                         const WorkloadConfig& config,
                         const HardwareProfile& profile) {
  Evaluation result;
  const Graph graph = build_graph(config.policy, plan.structure);
  result.plan = plan;
  result.priced = price_plan(plan, graph, config, profile);
  result.steady = simulate(result.priced.tasks, config.optimizer.k_eval);
  result.metrics = measure(result, graph, config);
  return result;
}

std::string too_long_text(const Evaluation& evaluation) {
  const auto& tasks = evaluation.priced.tasks.tasks;
  const auto longest =
      std::ranges::max_element(tasks, {}, [](const TimedTask& task) { return task.time.total_s; });
  if (longest == tasks.end() || longest->time.total_s <= kLongestTask_s) return "";
  return fmt::format(
      "{} takes {:.3g} s in every iteration, more than the {:.0e} s up to which "
      "plans are compared",
      longest->name,
      longest->time.total_s,
      kLongestTask_s);
}

double plan_objective(const Evaluation& evaluation, const WorkloadConfig& config) {
  const double objective = std::log(evaluation.steady.period_s);
  return config.optimizer.objective == Objective::kCost
             ? objective + std::log(evaluation.metrics.active_gpus)
             : objective;
}

std::vector<double> critical_shares(const Evaluation& evaluation) {
  const TaskGraph& graph = evaluation.priced.tasks;
  const std::size_t vertices = evaluation.plan.vertices.size();
  std::vector<double> shares(vertices, 0.0);
  double total = 0.0;
  const auto add = [&](std::int32_t vertex, double seconds) {
    if (vertex < 0) return;  // a transfer
    shares[static_cast<std::size_t>(vertex)] += seconds;
    total += seconds;
  };
  const auto vertex_of = [&](std::int32_t task) {
    return graph.tasks[static_cast<std::size_t>(task)].vertex;
  };
  for (const std::int32_t id : evaluation.steady.critical_cycle) {
    const double seconds = graph.tasks[static_cast<std::size_t>(id)].time.total_s;
    if (vertex_of(id) >= 0) {
      add(vertex_of(id), seconds);
      continue;
    }
    for (const TaskEdge& edge : graph.edges) {
      if (edge.from == id) add(vertex_of(edge.to), seconds / 2);
      if (edge.to == id) add(vertex_of(edge.from), seconds / 2);
    }
  }
  for (double& share : shares) {
    share = total > 0.0 ? share / total : 1.0 / static_cast<double>(vertices);
  }
  return shares;
}

std::vector<double> idle_before(const TaskGraph& tasks, const SteadyState& steady) {
  std::vector<double> idle(tasks.tasks.size(), 0.0);
  std::vector<double> gpus(tasks.tasks.size(), 0.0);
  const auto atoms = static_cast<std::size_t>(tasks.atom_count);
  std::vector<std::vector<std::size_t>> users(atoms);  // in the order of the period
  for (const std::int32_t id : steady.order) {
    for (const std::int32_t atom : tasks.tasks[static_cast<std::size_t>(id)].atoms) {
      users[static_cast<std::size_t>(atom)].push_back(static_cast<std::size_t>(id));
    }
  }
  for (std::size_t atom = 0; atom < atoms; ++atom) {
    for (std::size_t i = 0; i < users[atom].size(); ++i) {
      const std::size_t now = users[atom][i];
      const std::size_t before = i > 0 ? users[atom][i - 1] : users[atom].back();
      const std::int64_t delta = steady.shift[before] - steady.shift[now] + (i > 0 ? 0 : 1);
      const double free = steady.start_s[before] + tasks.tasks[before].time.total_s;
      const double wait = steady.start_s[now] + static_cast<double>(delta) * steady.period_s - free;
      if (wait > kRounding_s) idle[now] += tasks.atom_gpus[atom] * wait;
      gpus[now] += tasks.atom_gpus[atom];
    }
  }
  for (std::size_t id = 0; id < idle.size(); ++id) {
    if (gpus[id] > 0.0) idle[id] /= gpus[id];
  }
  return idle;
}

PlanFile make_plan_file(const Evaluation& evaluation, const WorkloadConfig& config) {
  PlanFile file;
  file.inputs = config;
  file.plan = evaluation.plan;
  const TaskGraph& graph = evaluation.priced.tasks;
  const SteadyState& steady = evaluation.steady;
  for (std::size_t i = 0; i < steady.order.size(); ++i) {
    const auto id = static_cast<std::size_t>(steady.order[i]);
    file.schedule.push_back({graph.tasks[id].name, steady.shift[id], static_cast<std::int64_t>(i)});
  }
  file.predicted.iteration_time_s = steady.period_s;
  file.predicted.throughput_tokens_per_s = evaluation.metrics.tokens_per_s;
  const std::vector<double> idle = idle_before(graph, steady);
  for (std::size_t id = 0; id < graph.tasks.size(); ++id) {
    const TimedTask& task = graph.tasks[id];
    file.predicted.breakdown[task.name] = {
        task.time.compute_s, task.time.comm_s, task.time.bubble_s, idle[id], task.bytes};
    if (task.vertex >= 0) {
      const MemoryUse& use = evaluation.priced.memory[static_cast<std::size_t>(task.vertex)];
      file.predicted.memory_peak_bytes[task.name] = use.total;
    }
  }
  return file;
}

}  // namespace rpeg
