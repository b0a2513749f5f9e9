#include "rpeg/sim/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "rpeg/base/error.h"
#include "rpeg/base/rng.h"

namespace rpeg {
namespace {

enum PpoTask { kGenerate, kReward, kValue, kReference, kTrainCritic, kTrainActor };

TimedTask task(const std::string& name, double seconds, std::vector<std::int32_t> atoms) {
  TimedTask result;
  result.name = name;
  result.time.total_s = seconds;
  result.gpus = static_cast<double>(atoms.size());
  result.atoms = std::move(atoms);
  return result;
}

/// The PPO template; `seconds` and `atoms` in the order of PpoTask.
TaskGraph ppo(const std::vector<double>& seconds,
              const std::vector<std::vector<std::int32_t>>& atoms,
              std::int64_t tau_actor,
              std::int64_t tau_critic) {
  const std::vector<std::string> names{"g_pi", "i_R", "i_V", "i_ref", "t_V", "t_pi"};
  TaskGraph graph;
  for (std::size_t i = 0; i < names.size(); ++i) {
    graph.tasks.push_back(task(names[i], seconds[i], atoms[i]));
    for (const std::int32_t atom : atoms[i]) {
      graph.atom_count = std::max(graph.atom_count, atom + 1);
    }
  }
  graph.atom_gpus.assign(static_cast<std::size_t>(graph.atom_count), 1.0);
  for (const std::int32_t infer : {kReward, kValue, kReference}) {
    graph.edges.push_back({kGenerate, infer, 0});
    graph.edges.push_back({infer, kTrainActor, 0});
    if (infer != kReference) graph.edges.push_back({infer, kTrainCritic, 0});
  }
  graph.edges.push_back({kTrainActor, kGenerate, 1 + tau_actor});
  graph.edges.push_back({kTrainCritic, kValue, 1 + tau_critic});
  graph.edges.push_back({kTrainActor, kTrainActor, 1});
  graph.edges.push_back({kTrainCritic, kTrainCritic, 1});
  return graph;
}

const std::vector<double> kSeconds{10, 2, 3, 1, 4, 5};
const std::vector<std::vector<std::int32_t>> kDisjoint{{0}, {1}, {2}, {3}, {4}, {5}};
const std::vector<std::vector<std::int32_t>> kOneDevice(6, {0});

TEST(Simulator, FindsThePeriodOfPpoOnDisjointDevices) {
  // Synchronous: generation, the slowest inference, actor training: 10 + 3 + 5. One step behind:
  // (10 + 3 + 5) / 2 = 9 is less than generation alone, 10.
  EXPECT_DOUBLE_EQ(simulate(ppo(kSeconds, kDisjoint, 0, 0), 5).period_s, 18.0);
  EXPECT_DOUBLE_EQ(simulate(ppo(kSeconds, kDisjoint, 1, 1), 5).period_s, 10.0);
  EXPECT_DOUBLE_EQ(simulate(ppo(kSeconds, kDisjoint, 2, 2), 5).period_s, 10.0);
}

TEST(Simulator, SumsTheTasksOfOneDevice) {
  for (const std::int64_t tau : {0, 1, 2}) {  // 10 + 2 + 3 + 1 + 4 + 5
    EXPECT_DOUBLE_EQ(simulate(ppo(kSeconds, kOneDevice, tau, tau), 5).period_s, 25.0);
  }
}

TEST(Simulator, NamesTheCriticalCycle) {
  auto cycle = simulate(ppo(kSeconds, kDisjoint, 0, 0), 5).critical_cycle;
  std::ranges::sort(cycle);
  EXPECT_EQ(cycle, (std::vector<std::int32_t>{kGenerate, kValue, kTrainActor}));
  EXPECT_EQ(simulate(ppo(kSeconds, kDisjoint, 1, 1), 5).critical_cycle,
            (std::vector<std::int32_t>{kGenerate}));
}

TEST(Simulator, StartsTheOrderWithTheLeadingTask) {
  const SteadyState steady = simulate(ppo(kSeconds, kOneDevice, 0, 0), 5);
  EXPECT_EQ(steady.order.front(), kGenerate);
  EXPECT_EQ(steady.shift, std::vector<std::int64_t>(6, 0));
  // Longest remaining path first: i_V (3 + 5), i_R (2 + 5), i_ref (1 + 5), t_pi (5), t_V (4).
  EXPECT_EQ(steady.order,
            (std::vector<std::int32_t>{
                kGenerate, kValue, kReward, kReference, kTrainActor, kTrainCritic}));
  EXPECT_EQ(steady.start_s, (std::vector<double>{0, 13, 10, 15, 21, 16}));
}

TEST(Simulator, RunsATransferOnBothBlocks) {
  // g (4) on atom 0, t (3) on atom 1, the transfer (2) holds both: 4 + 3 + 2.
  TaskGraph graph;
  graph.tasks = {task("g", 4, {0}), task("t", 3, {1}), task("t->g", 2, {0, 1})};
  graph.edges = {{0, 1, 0}, {1, 2, 0}, {2, 0, 1}};
  graph.atom_count = 2;
  EXPECT_DOUBLE_EQ(simulate(graph, 5).period_s, 9.0);
  // One step behind, generation overlaps training: (4 + 2) on atom 0.
  graph.edges.back().delta = 2;
  EXPECT_DOUBLE_EQ(simulate(graph, 5).period_s, 6.0);
}

TEST(Simulator, UnrollsAtLeastTheIterationsAskedFor) {
  const SteadyState steady = simulate(ppo(kSeconds, kDisjoint, 0, 0), 12);
  for (std::int32_t id = 0; id < 6; ++id) {
    EXPECT_GE(std::ranges::count(steady.timeline, id, &ScheduledTask::task), 12);
  }
}

TEST(Simulator, RefusesTasksThatWaitForEachOther) {
  TaskGraph graph;
  graph.tasks = {task("a", 1, {0}), task("b", 1, {0})};
  graph.edges = {{0, 1, 0}, {1, 0, 0}};
  graph.atom_count = 1;
  EXPECT_THROW(simulate(graph, 5), Error);
}

/// A random PPO instance: integer durations, four devices, τ up to 2.
TaskGraph random_ppo(Rng& rng) {
  std::vector<double> seconds;
  std::vector<std::vector<std::int32_t>> atoms;
  for (int i = 0; i < 6; ++i) {
    seconds.push_back(static_cast<double>(1 + rng.below(20)));
    std::vector<std::int32_t> mine;
    for (std::int32_t atom = 0; atom < 4; ++atom) {
      if (rng.below(3) == 0) mine.push_back(atom);
    }
    if (mine.empty()) mine.push_back(static_cast<std::int32_t>(rng.below(4)));
    atoms.push_back(mine);
  }
  TaskGraph graph = ppo(seconds, atoms, rng.below(3), rng.below(3));
  graph.atom_count = 4;
  graph.atom_gpus.assign(4, 1.0);
  return graph;
}

/// The largest sum of durations on one atom.
double largest_load(const TaskGraph& graph) {
  std::vector<double> load(static_cast<std::size_t>(graph.atom_count), 0.0);
  for (const TimedTask& now : graph.tasks) {
    for (const std::int32_t atom : now.atoms) {
      load[static_cast<std::size_t>(atom)] += now.time.total_s;
    }
  }
  return *std::ranges::max_element(load);
}

TEST(Simulator, NeverBeatsTheLowerBoundsOfRandomPlans) {
  Rng rng(7);
  double sum_of_gaps = 0.0;
  for (int i = 0; i < 1500; ++i) {
    const TaskGraph graph = random_ppo(rng);
    std::vector<double> seconds;
    for (const TimedTask& now : graph.tasks) seconds.push_back(now.time.total_s);
    const double bound =
        std::max(largest_load(graph), maximum_cycle_ratio(seconds, graph.edges, nullptr));
    const double period = simulate(graph, 5).period_s;
    ASSERT_GE(period, bound * (1 - 1e-12)) << "instance " << i;
    sum_of_gaps += period / bound - 1.0;
  }
  EXPECT_LT(sum_of_gaps / 1500, 0.10);  // list scheduling is near these bounds on average
}

/// Executes a single-iteration order literally, instance by instance, and returns the time that
/// one of many iterations takes: an independent meaning of `order` and `shift`.
double replay(const TaskGraph& graph, const SteadyState& steady, std::int64_t iterations) {
  const std::size_t tasks = graph.tasks.size();
  std::vector<std::vector<double>> end(tasks);
  std::vector<double> free(static_cast<std::size_t>(graph.atom_count), 0.0);
  double middle = 0.0;
  double last = 0.0;
  for (std::int64_t period = 0; period < 2 * iterations; ++period) {
    for (const std::int32_t id : steady.order) {
      const auto now = static_cast<std::size_t>(id);
      const std::int64_t iteration = period - steady.shift[now];
      if (iteration < 0) continue;
      double start = 0.0;
      for (const TaskEdge& edge : graph.edges) {
        if (edge.to != id || iteration < edge.delta) continue;
        const auto& ends = end[static_cast<std::size_t>(edge.from)];
        EXPECT_GT(ends.size(), static_cast<std::size_t>(iteration - edge.delta))
            << "the order runs a task before its input";
        if (ends.size() <= static_cast<std::size_t>(iteration - edge.delta)) return -1.0;
        start = std::max(start, ends[static_cast<std::size_t>(iteration - edge.delta)]);
      }
      for (const auto atom : graph.tasks[now].atoms) {
        start = std::max(start, free[static_cast<std::size_t>(atom)]);
      }
      const double ending = start + graph.tasks[now].time.total_s;
      for (const auto atom : graph.tasks[now].atoms) {
        free[static_cast<std::size_t>(atom)] = ending;
      }
      end[now].push_back(ending);
      last = std::max(last, ending);
    }
    if (period == iterations - 1) middle = last;
  }
  return (last - middle) / static_cast<double>(iterations);
}

TEST(Simulator, PeriodIsThatOfItsOrderExecutedLiterally) {
  Rng rng(11);
  for (int i = 0; i < 300; ++i) {
    const TaskGraph graph = random_ppo(rng);
    const SteadyState steady = simulate(graph, 5);
    // 5040 is a multiple of every Σ δ that can occur here, so the mean is exact.
    ASSERT_NEAR(replay(graph, steady, 5040), steady.period_s, 1e-6) << "instance " << i;
  }
}

TEST(Simulator, StartsSatisfyEveryDependencyAndAtom) {
  Rng rng(13);
  for (int i = 0; i < 300; ++i) {
    const TaskGraph graph = random_ppo(rng);
    const SteadyState steady = simulate(graph, 5);
    const auto start = [&](std::int32_t id, std::int64_t iteration) {
      return steady.start_s[static_cast<std::size_t>(id)] +
             static_cast<double>(iteration) * steady.period_s;
    };
    for (const TaskEdge& edge : graph.edges) {
      const double input_end =
          start(edge.from, 0) + graph.tasks[static_cast<std::size_t>(edge.from)].time.total_s;
      ASSERT_GE(start(edge.to, edge.delta), input_end - 1e-6);
    }
    for (std::int32_t atom = 0; atom < graph.atom_count; ++atom) {
      std::vector<std::pair<double, double>> busy;
      for (std::int32_t id = 0; id < 6; ++id) {
        const auto& now = graph.tasks[static_cast<std::size_t>(id)];
        if (std::ranges::find(now.atoms, atom) == now.atoms.end()) continue;
        for (std::int64_t k = 0; k < 12; ++k) {
          busy.emplace_back(start(id, k), start(id, k) + now.time.total_s);
        }
      }
      std::ranges::sort(busy);
      for (std::size_t j = 1; j < busy.size(); ++j) {
        ASSERT_GE(busy[j].first, busy[j - 1].second - 1e-6);
      }
    }
  }
}

TEST(Simulator, IsDeterministic) {
  Rng rng(17);
  const TaskGraph graph = random_ppo(rng);
  const SteadyState a = simulate(graph, 5);
  const SteadyState b = simulate(graph, 5);
  EXPECT_EQ(a.order, b.order);
  EXPECT_EQ(a.period_s, b.period_s);
  EXPECT_EQ(a.start_s, b.start_s);
}

}  // namespace
}  // namespace rpeg
