#include "rpeg/sim/simulator.h"

#include <algorithm>
#include <tuple>

#include "rpeg/sim/steady_solver.h"
#include "sim/cycle_ratio.h"
#include "sim/order_rating.h"

namespace rpeg {

SteadyState simulate(const TaskGraph& graph, std::int64_t k_eval) {
  SteadyState steady;
  if (graph.tasks.empty()) return steady;
  const CompactTasks tasks = compact_tasks(graph);
  SteadySolver solver;
  const SteadyOrder& best = solver.solve(tasks, k_eval, &steady.timeline);
  steady.period_s = best.period_s();
  steady.critical_cycle = best.cycle;
  // The order of the starts within a period. Durations are positive, so tasks that start at the
  // same time are independent; of those the later iteration comes first, as the first task leads.
  std::vector<TaskEdge> edges;
  sim::event_graph(tasks, best.order, &edges);
  const std::vector<std::int64_t> start =
      sim::earliest_starts({tasks.duration_ns.begin(),
                            tasks.duration_ns.begin() + static_cast<std::ptrdiff_t>(tasks.count)},
                           edges,
                           {best.period_ns, best.delta, {}});
  for (std::size_t id = 0; id < start.size(); ++id) {
    steady.order.push_back(static_cast<std::int32_t>(id));
    steady.shift.push_back(start[id] / best.period_ns);
    steady.start_s.push_back(static_cast<double>(start[id]) / static_cast<double>(best.delta) /
                             1e9);
  }
  std::ranges::sort(steady.order, {}, [&](std::int32_t task) {
    const auto id = static_cast<std::size_t>(task);
    return std::tuple(start[id] % best.period_ns, steady.shift[id], task);
  });
  return steady;
}

}  // namespace rpeg
