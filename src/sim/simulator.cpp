#include "rpeg/sim/simulator.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "rpeg/base/error.h"
#include "sim/list_scheduler.h"

namespace rpeg {
namespace {

using sim::CycleRatio;
using sim::Instance;

/// Dependencies, and the order of the tasks on every atom with a wrap-around arc of δ = 1. Tasks
/// without atoms still run one instance at a time.
std::vector<TaskEdge> event_graph(const TaskGraph& graph, const std::vector<Instance>& order) {
  std::vector<TaskEdge> edges = graph.edges;
  std::vector<Instance> first(static_cast<std::size_t>(graph.atom_count), Instance{-1, 0});
  std::vector<Instance> last = first;
  for (const Instance& now : order) {
    const auto& atoms = graph.tasks[static_cast<std::size_t>(now.task)].atoms;
    if (atoms.empty()) edges.push_back({now.task, now.task, 1});
    for (const std::int32_t atom : atoms) {
      const auto a = static_cast<std::size_t>(atom);
      if (first[a].task < 0) {
        first[a] = now;
      } else {
        edges.push_back({last[a].task, now.task, now.iteration - last[a].iteration});
      }
      last[a] = now;
    }
  }
  for (std::size_t a = 0; a < first.size(); ++a) {
    if (first[a].task < 0) continue;
    edges.push_back({last[a].task, first[a].task, 1 + first[a].iteration - last[a].iteration});
  }
  return edges;
}

/// The first occurrence of every task from position `from` of a periodic sequence on.
std::vector<Instance> window(const sim::PeriodicSequence& sequence,
                             std::size_t from,
                             std::size_t tasks) {
  std::vector<bool> seen(tasks, false);
  std::vector<Instance> order;
  for (std::size_t i = from; order.size() < tasks; ++i) {
    Instance now = sequence.instances[i % sequence.instances.size()];
    now.iteration += static_cast<std::int64_t>(i / sequence.instances.size()) * sequence.iterations;
    if (seen[static_cast<std::size_t>(now.task)]) continue;
    seen[static_cast<std::size_t>(now.task)] = true;
    order.push_back(now);
  }
  return order;
}

struct RatedOrder {
  std::vector<Instance> order;
  std::vector<TaskEdge> edges;
  CycleRatio ratio;
};

bool is_shorter(const CycleRatio& a, const CycleRatio& b) {
  return a.duration_ns * b.delta < b.duration_ns * a.delta;
}

/// The single-iteration order of least period among those that the periodic regime contains.
RatedOrder best_single_iteration_order(const TaskGraph& graph, const sim::ListSchedule& schedule) {
  const std::size_t tasks = graph.tasks.size();
  std::vector<std::vector<Instance>> candidates;
  // With one iteration in the sequence every window is the same cyclic order.
  const std::size_t windows =
      schedule.sequence.iterations == 1 ? 1 : schedule.sequence.instances.size();
  for (std::size_t i = 0; i < windows; ++i) {
    candidates.push_back(window(schedule.sequence, i, tasks));
  }
  // Iterations strictly one after the other: never a deadlock, so there is always a candidate.
  if (windows != 1) candidates.push_back(schedule.one_iteration);
  RatedOrder best;
  for (auto& order : candidates) {
    auto edges = event_graph(graph, order);
    const auto ratio = sim::find_maximum_cycle_ratio(schedule.duration_ns, edges);
    if (!ratio || (!best.order.empty() && !is_shorter(*ratio, best.ratio))) continue;
    best = {std::move(order), std::move(edges), *ratio};
  }
  check(!best.order.empty(), "the schedule has an order without deadlock");
  return best;
}

}  // namespace

SteadyState simulate(const TaskGraph& graph, std::int64_t k_eval) {
  SteadyState steady;
  if (graph.tasks.empty()) return steady;
  sim::ListSchedule schedule = sim::list_schedule(graph, k_eval);
  const RatedOrder best = best_single_iteration_order(graph, schedule);
  const auto delta = static_cast<double>(best.ratio.delta);
  steady.period_s = static_cast<double>(best.ratio.duration_ns) / delta / 1e9;
  steady.critical_cycle = best.ratio.cycle;
  // The order of the starts within a period. Durations are positive, so tasks that start at the
  // same time are independent; of those the later iteration comes first, as the first task leads.
  const std::vector<std::int64_t> start =
      sim::earliest_starts(schedule.duration_ns, best.edges, best.ratio);
  const std::int64_t period = best.ratio.duration_ns;
  for (std::size_t id = 0; id < start.size(); ++id) {
    steady.order.push_back(static_cast<std::int32_t>(id));
    steady.shift.push_back(start[id] / period);
    steady.start_s.push_back(static_cast<double>(start[id]) / delta / 1e9);
  }
  std::ranges::sort(steady.order, {}, [&](std::int32_t task) {
    const auto id = static_cast<std::size_t>(task);
    return std::tuple(start[id] % period, steady.shift[id], task);
  });
  steady.timeline = std::move(schedule.timeline);
  return steady;
}

}  // namespace rpeg
