#include "rpeg/sim/steady_solver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "rpeg/base/rng.h"
#include "sim/cycle_ratio.h"
#include "sim/order_rating.h"
#include "unit/sim/reference_scheduler.h"

namespace rpeg {
namespace {

TimedTask task(double seconds, std::vector<std::int32_t> atoms) {
  TimedTask result;
  result.time.total_s = seconds;
  result.atoms = std::move(atoms);
  return result;
}

/// 2 to 12 tasks on up to 5 atoms, some without any; edges of δ = 0 lead upwards in an order that
/// is not that of the tasks; whole or fractional seconds, so with and without ties.
TaskGraph random_graph(Rng& rng) {
  TaskGraph graph;
  const std::int64_t tasks = 2 + rng.below(11);
  graph.atom_count = static_cast<std::int32_t>(1 + rng.below(5));
  const bool whole = rng.below(2) == 0;
  std::vector<std::int32_t> position;
  for (std::int32_t i = 0; i < tasks; ++i) position.push_back(i);
  for (std::size_t i = position.size(); i > 1; --i) {
    std::swap(position[i - 1],
              position[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(i)))]);
  }
  for (std::int64_t i = 0; i < tasks; ++i) {
    std::vector<std::int32_t> atoms;
    for (std::int32_t atom = 0; atom < graph.atom_count; ++atom) {
      if (rng.below(3) == 0) atoms.push_back(atom);
    }
    graph.tasks.push_back(
        task(whole ? static_cast<double>(1 + rng.below(9)) : 0.01 + 5.0 * rng.uniform(), atoms));
  }
  graph.atom_gpus.assign(static_cast<std::size_t>(graph.atom_count), 1.0);
  const std::int64_t edges = tasks + rng.below(2 * tasks);
  for (std::int64_t i = 0; i < edges; ++i) {
    const auto from = static_cast<std::int32_t>(rng.below(tasks));
    const auto to = static_cast<std::int32_t>(rng.below(tasks));
    const bool up =
        position[static_cast<std::size_t>(from)] < position[static_cast<std::size_t>(to)];
    graph.edges.push_back({from, to, up && rng.below(3) > 0 ? 0 : 1 + rng.below(3)});
  }
  return graph;
}

TEST(SteadySolver, AgreesWithThePlainSimulationOfRandomGraphs) {
  Rng rng(101);
  SteadySolver solver;
  int several = 0;
  for (int i = 0; i < 10000; ++i) {
    const TaskGraph graph = random_graph(rng);
    const reference::Period expected = reference::find_period(graph);
    const SteadyOrder& found = solver.solve(compact_tasks(graph));
    ASSERT_EQ(found.period_ns * expected.ratio.delta, expected.ratio.duration_ns * found.delta)
        << "graph " << i << " repeats every " << expected.iterations << " iterations";
    if (expected.iterations > 1) ++several;
  }
  EXPECT_GT(several, 200);  // both ways to a period were taken
}

TEST(SteadySolver, HasThePeriodOfTheEventGraphOfItsOrder) {
  Rng rng(103);
  SteadySolver solver;
  for (int i = 0; i < 10000; ++i) {
    const TaskGraph graph = random_graph(rng);
    const CompactTasks tasks = compact_tasks(graph);
    std::vector<ScheduledTask> timeline;
    const SteadyOrder fast = solver.solve(tasks);
    const SteadyOrder& full = solver.solve(tasks, 8, &timeline);
    ASSERT_EQ(fast.period_ns, full.period_ns);
    ASSERT_EQ(fast.delta, full.delta);
    ASSERT_EQ(fast.cycle, full.cycle);
    // The order on atoms, not on conflicting pairs, and a search that is not the library's.
    std::vector<reference::Instance> order;
    for (const TaskInstance& now : full.order) order.push_back({now.task, now.iteration});
    const auto ratio = reference::find_maximum_cycle_ratio(
        {tasks.duration_ns.begin(),
         tasks.duration_ns.begin() + static_cast<std::ptrdiff_t>(tasks.count)},
        reference::event_graph(graph, order));
    ASSERT_TRUE(ratio.has_value());
    ASSERT_EQ(ratio->duration_ns * full.delta, full.period_ns * ratio->delta) << "graph " << i;
  }
}

TEST(SteadySolver, NamesACycleOfThePeriod) {
  Rng rng(107);
  SteadySolver solver;
  for (int i = 0; i < 2000; ++i) {
    const CompactTasks tasks = compact_tasks(random_graph(rng));
    std::vector<ScheduledTask> timeline;
    const SteadyOrder& found = solver.solve(tasks, 1, &timeline);
    std::vector<TaskEdge> edges;
    sim::event_graph(tasks, found.order, &edges);
    // On the critical cycle alone the ratio is the same.
    std::vector<TaskEdge> on_cycle;
    for (const TaskEdge& edge : edges) {
      const auto from = std::ranges::find(found.cycle, edge.from);
      if (from == found.cycle.end()) continue;
      const auto next = from + 1 == found.cycle.end() ? found.cycle.begin() : from + 1;
      if (*next == edge.to) on_cycle.push_back(edge);
    }
    const auto ratio = reference::find_maximum_cycle_ratio(
        {tasks.duration_ns.begin(),
         tasks.duration_ns.begin() + static_cast<std::ptrdiff_t>(tasks.count)},
        on_cycle);
    ASSERT_TRUE(ratio.has_value());
    ASSERT_EQ(ratio->duration_ns * found.delta, found.period_ns * ratio->delta) << "graph " << i;
  }
}

TEST(SteadySolver, UnrollsTheTimelineOfThePlainSimulation) {
  Rng rng(109);
  SteadySolver solver;
  for (int i = 0; i < 1000; ++i) {
    const TaskGraph graph = random_graph(rng);
    std::vector<ScheduledTask> timeline;
    solver.solve(compact_tasks(graph), 6, &timeline);
    const auto expected = reference::list_schedule(graph, 6).timeline;
    for (std::size_t j = 0; j < std::min(timeline.size(), expected.size()); ++j) {
      ASSERT_EQ(timeline[j].task, expected[j].task) << "graph " << i << " start " << j;
      ASSERT_EQ(timeline[j].iteration, expected[j].iteration);
      ASSERT_EQ(timeline[j].start_ns, expected[j].start_ns);
      ASSERT_EQ(timeline[j].end_ns, expected[j].end_ns);
    }
  }
}

TEST(CompactTasks, ConflictWhereTheyShareAnAtom) {
  TaskGraph graph;
  graph.tasks = {task(1.0, {0, 1}), task(2e-10, {1, 2}), task(3.0, {2}), task(4.0, {})};
  graph.atom_count = 3;
  const CompactTasks tasks = compact_tasks(graph);
  EXPECT_EQ(tasks.conflicts[0], 0b0010U);
  EXPECT_EQ(tasks.conflicts[1], 0b0101U);
  EXPECT_EQ(tasks.conflicts[2], 0b0010U);
  EXPECT_EQ(tasks.conflicts[3], 0U);
  EXPECT_EQ(tasks.duration_ns[0], 1000000000);
  EXPECT_EQ(tasks.duration_ns[1], 1);  // never 0
}

}  // namespace
}  // namespace rpeg
