#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "rpeg/plan/cells.h"
#include "unit/cost/example.h"

namespace rpeg {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

/// "g_pi->t_pi 0" for every edge between tasks.
std::vector<std::string> edge_texts(const TaskGraph& graph) {
  std::vector<std::string> texts;
  for (const TaskEdge& edge : graph.edges) {
    texts.push_back(graph.tasks[static_cast<std::size_t>(edge.from)].name + " => " +
                    graph.tasks[static_cast<std::size_t>(edge.to)].name + " " +
                    std::to_string(edge.delta));
  }
  return texts;
}

TaskGraph tasks_of(const Plan& plan, const HardwareProfile& profile = example_profile()) {
  const WorkloadConfig config = two_vertices();
  return price_plan(plan, build_graph(config.policy, plan.structure), config, profile).tasks;
}

VertexPlan on_node(int node, Parallelism parallelism) {
  return {parallelism, 1, {{0, 0}, {node, node}, {0, 3}}};
}

TEST(TaskGraph, NeedsNoTransferForTheSameLayout) {
  const VertexPlan a = on_node(0, {4, 1, 1});
  for (const std::int64_t tau : {0, 2}) {
    const TaskGraph graph = tasks_of({{.tau_actor = tau}, {a, a}});
    EXPECT_EQ(graph.tasks.size(), 2U);
    EXPECT_THAT(edge_texts(graph),
                UnorderedElementsAre(
                    "g_pi => t_pi 0", "t_pi => g_pi " + std::to_string(1 + tau), "t_pi => t_pi 1"));
    EXPECT_EQ(graph.atom_count, 1);
    EXPECT_EQ(graph.atom_gpus[0], 4.0);
  }
}

TEST(TaskGraph, HoldsBothBlocksDuringASynchronousTransfer) {
  const TaskGraph graph = tasks_of({{}, {on_node(0, {4, 1, 1}), on_node(1, {4, 1, 1})}});
  ASSERT_EQ(graph.tasks.size(), 3U);
  const TimedTask& transfer = graph.tasks[2];
  EXPECT_EQ(transfer.name, "t_pi->g_pi");
  EXPECT_THAT(transfer.atoms, ElementsAre(0, 1));  // the receiver's too
  EXPECT_EQ(transfer.gpus, 8.0);
  // Equal strategies on different blocks still move four copies of the model.
  EXPECT_DOUBLE_EQ(transfer.bytes,
                   4 * 2.0 * static_cast<double>(parameter_count(llama_2_7b(), false)));
  EXPECT_GT(transfer.time.total_s, 0.0);
  EXPECT_THAT(
      edge_texts(graph),
      UnorderedElementsAre(
          "g_pi => t_pi 0", "t_pi => t_pi->g_pi 0", "t_pi->g_pi => g_pi 1", "t_pi => t_pi 1"));
}

TEST(TaskGraph, RunsAStaleTransferBesideCompute) {
  HardwareProfile profile = example_profile();
  const std::vector<VertexPlan> plans{on_node(0, {4, 1, 1}), on_node(1, {4, 1, 1})};
  const double alone = tasks_of({{}, plans}, profile).tasks[2].time.total_s;
  profile.overlap_slowdown = 1.25;
  const TaskGraph graph = tasks_of({{.tau_actor = 1}, plans}, profile);
  const TimedTask& transfer = graph.tasks[2];
  EXPECT_THAT(transfer.atoms, ElementsAre());
  EXPECT_EQ(transfer.gpus, 0.0);
  EXPECT_DOUBLE_EQ(transfer.time.total_s, 1.25 * alone);
  EXPECT_THAT(edge_texts(graph),
              UnorderedElementsAre("g_pi => t_pi 0",
                                   "t_pi => t_pi->g_pi 0",
                                   "t_pi->g_pi => g_pi 2",  // 1 + τ
                                   "t_pi->g_pi => t_pi->g_pi 1",
                                   "t_pi => t_pi 1"));
}

TEST(TaskGraph, GivesEachTaskTheAtomsOfItsBlock) {
  // g_pi on nodes 0-1, t_pi on nodes 1-2: atoms in the order of their sets of vertices.
  const VertexPlan g{{8, 1, 1}, 1, {{0, 0}, {0, 1}, {0, 3}}};
  const VertexPlan t{{8, 1, 1}, 1, {{0, 0}, {1, 2}, {0, 3}}};
  const TaskGraph graph = tasks_of({{}, {g, t}});
  EXPECT_EQ(graph.atom_count, 3);
  EXPECT_THAT(graph.atom_gpus, ElementsAre(4.0, 4.0, 4.0));
  EXPECT_THAT(graph.tasks[0].atoms, ElementsAre(0, 2));
  EXPECT_THAT(graph.tasks[1].atoms, ElementsAre(1, 2));
  EXPECT_EQ(graph.tasks[0].gpus, 8.0);
}

TEST(TaskGraph, ChargesDataToTheReceiverOnAnotherBlock) {
  const WorkloadConfig config = two_vertices();
  const HardwareProfile profile = example_profile();
  const TaskGraph together = tasks_of({{}, {on_node(0, {4, 1, 1}), on_node(0, {4, 1, 1})}});
  const TaskGraph apart = tasks_of({{}, {on_node(0, {4, 1, 1}), on_node(1, {4, 1, 1})}});
  // 64 sequences: ids of 128 + E[ℓ] tokens, log-probabilities of E[ℓ], a quarter per replica.
  const double bytes = 64 * 4.0 * (128 + 2 * expected_length(config.workload)) / 4;
  EXPECT_NEAR(apart.tasks[1].time.total_s - together.tasks[1].time.total_s,
              profile.point_to_point[1].alpha_s + bytes * profile.point_to_point[1].beta_s_per_byte,
              1e-12);
}

TEST(PricePlan, OfALargeClusterIsTheSameWorkAsOfASmallOne) {
  // 32 768 GPUs: the block of every vertex is the whole cluster; three blocks of different layouts.
  WorkloadConfig config = example_config();
  config.hardware.racks = 64;
  config.hardware.nodes_per_rack = 64;
  config.hardware.gpus_per_node = 8;
  config.workload.batch_size = 65536;
  const Placement all{{0, 63}, {0, 63}, {0, 7}};
  const VertexPlan g{{32768, 1, 1}, 1, all};
  const VertexPlan i{{4096, 1, 8}, 1, all};
  const VertexPlan t{{1024, 4, 8}, 4, all};
  const Plan plan{{}, {g, i, i, i, t, t}};
  const Graph graph = build_graph(config.policy, {});
  ASSERT_TRUE(find_violations(plan, graph, config).empty());
  const auto start = std::chrono::steady_clock::now();
  constexpr int kRepeats = 20;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    EXPECT_EQ(price_plan(plan, graph, config, example_profile()).tasks.atom_count, 1);
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_LT(elapsed.count() / kRepeats, 0.01);  // a visit to each GPU pair would take far longer
  EXPECT_EQ(active_gpu_count(plan), 32768);
}

TEST(PricePlan, PricesEveryAlgorithm) {
  for (const Algorithm algorithm : {Algorithm::kPpo, Algorithm::kGrpo, Algorithm::kDpo}) {
    WorkloadConfig config = example_config();
    config.policy.algorithm = algorithm;
    config.policy.recompute_logprobs = true;
    const Graph graph = build_graph(config.policy, {});
    const Plan plan{{}, std::vector<VertexPlan>(graph.vertices.size(), on_node(0, {2, 2, 1}))};
    const PricedPlan priced = price_plan(plan, graph, config, example_profile());
    ASSERT_EQ(priced.tasks.tasks.size(), graph.vertices.size());
    for (const TimedTask& task : priced.tasks.tasks) {
      EXPECT_GT(task.time.total_s, 0.0) << task.name;
      EXPECT_EQ(task.gpus, 4.0);
    }
  }
}

}  // namespace
}  // namespace rpeg
