#include <gtest/gtest.h>

#include "unit/cost/example.h"

namespace rpeg {
namespace {

/// A stale PPO plan on two nodes of a rack: every class of work, data and weights between nodes.
Plan two_node_plan() {
  Plan plan{{.tau_actor = 1}, {}};
  const WorkloadConfig config = example_config();
  for (const Vertex& vertex : build_graph(config.policy, plan.structure).vertices) {
    const int node = vertex.op == Op::kGenerate ? 0 : 1;
    plan.vertices.push_back({{2, 1, 2}, 1, {{0, 0}, {node, node}, {0, 3}}});
  }
  return plan;
}

TaskGraph price(const ObservedFactors& factors) {
  const WorkloadConfig config = example_config();
  HardwareProfile profile = example_profile();
  profile.observed = factors;
  const Plan plan = two_node_plan();
  return price_plan(plan, build_graph(config.policy, plan.structure), config, profile).tasks;
}

bool belongs(const TimedTask& task, WorkClass work) {
  const Graph graph = build_graph(example_config().policy, two_node_plan().structure);
  if (task.vertex < 0) return work == WorkClass::kTransfer;
  return work_class(graph.vertices[static_cast<std::size_t>(task.vertex)].op) == work;
}

TEST(ObservedFactors, ScaleTheTasksOfTheirClassAndNoOthers) {
  const TaskGraph plain = price({});
  for (std::size_t i = 0; i < kWorkClasses; ++i) {
    const auto work = static_cast<WorkClass>(i);
    ObservedFactors factors;
    factors.of(work, Tier::kNode) = {.factor = 1.75, .spread = 0.0, .samples = 1};
    const TaskGraph scaled = price(factors);
    ASSERT_EQ(scaled.tasks.size(), plain.tasks.size());
    int touched = 0;
    for (std::size_t t = 0; t < plain.tasks.size(); ++t) {
      const double factor = belongs(plain.tasks[t], work) ? 1.75 : 1.0;
      touched += factor == 1.0 ? 0 : 1;
      const TaskTime& before = plain.tasks[t].time;
      const TaskTime& after = scaled.tasks[t].time;
      EXPECT_GT(before.total_s, 0.0);
      // The arrival of data is in the time of the receiver, and scales with it.
      EXPECT_NEAR(after.total_s, factor * before.total_s, 1e-12 * before.total_s);
      EXPECT_NEAR(after.compute_s, factor * before.compute_s, 1e-12 * before.total_s);
      EXPECT_NEAR(after.comm_s, factor * before.comm_s, 1e-12 * before.total_s);
    }
    EXPECT_GT(touched, 0) << to_string(work);
  }
}

TEST(ObservedFactors, GoByTheTierOfTheBlock) {
  const WorkloadConfig config = two_vertices();
  HardwareProfile profile = example_profile();
  const Graph graph = build_graph(config.policy, {});
  const Vertex& training = graph.vertices.back();
  const VertexPlan in_a_node{{4, 1, 1}, 1, {{0, 0}, {0, 0}, {0, 3}}};
  const VertexPlan in_a_rack{{8, 1, 1}, 1, {{0, 0}, {0, 1}, {0, 3}}};
  const VertexPlan in_two_racks{{16, 1, 1}, 1, {{0, 1}, {0, 1}, {0, 3}}};
  const auto seconds = [&](const VertexPlan& plan) {
    return price_vertex(training, plan, config, profile).total_s;
  };
  const double node_s = seconds(in_a_node);
  const double rack_s = seconds(in_a_rack);
  const double racks_s = seconds(in_two_racks);
  profile.observed.of(WorkClass::kTrain, Tier::kNode) = {2.0, 0.0, 1};
  profile.observed.of(WorkClass::kTrain, Tier::kCluster) = {5.0, 0.0, 1};
  EXPECT_DOUBLE_EQ(seconds(in_a_node), 2.0 * node_s);
  EXPECT_DOUBLE_EQ(seconds(in_a_rack), 2.0 * rack_s);  // not observed: the nearest, faster one
  EXPECT_DOUBLE_EQ(seconds(in_two_racks), 5.0 * racks_s);
}

}  // namespace
}  // namespace rpeg
