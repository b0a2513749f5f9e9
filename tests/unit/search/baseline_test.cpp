#include "rpeg/search/baseline.h"

#include <gtest/gtest.h>

#include "rpeg/plan/cells.h"
#include "rpeg/search/evaluation.h"
#include "support/planning.h"

namespace rpeg {
namespace {

TEST(GreedyPlan, PutsEveryVertexOnAllGpus) {
  const WorkloadConfig config = test::small_ppo(1, 2, 4);
  const Plan plan = greedy_plan(config, test::small_hardware());
  for (const VertexPlan& vertex : plan.vertices) {
    EXPECT_EQ(vertex.placement, (Placement{{0, 0}, {0, 1}, {0, 3}}));
  }
  EXPECT_EQ(plan.structure, Structure{});
  EXPECT_DOUBLE_EQ(evaluate_plan(plan, config, test::small_hardware()).metrics.gpu_utilization,
                   1.0);
}

TEST(GreedyPlan, TakesTheFastestSplitOfEachVertex) {
  const WorkloadConfig config = test::small_ppo(1, 1, 4);
  const HardwareProfile profile = test::small_hardware();
  const Graph graph = build_graph(config.policy, {});
  const Plan plan = greedy_plan(config, profile);
  for (std::size_t v = 0; v < graph.vertices.size(); ++v) {
    const double mine = price_vertex(graph.vertices[v], plan.vertices[v], config, profile).total_s;
    for (const int tp : {1, 2, 4}) {
      for (int pp = 1; pp * tp <= 4; pp *= 2) {
        VertexPlan other = plan.vertices[v];
        other.parallelism = {4 / tp / pp, pp, tp};
        for (other.micro_batches = 1; other.micro_batches <= 4; other.micro_batches *= 2) {
          EXPECT_LE(mine, price_vertex(graph.vertices[v], other, config, profile).total_s);
        }
      }
    }
  }
}

TEST(GreedyPlan, LeavesGpusThatNoSplitCanUse) {
  WorkloadConfig config = test::small_grpo(16);  // 8 sequences, dp alone
  config.optimizer.max_tp = 1;
  config.optimizer.max_pp = 1;
  for (const VertexPlan& vertex : greedy_plan(config, test::small_hardware()).vertices) {
    EXPECT_EQ(vertex.parallelism, (Parallelism{8, 1, 1}));
  }
}

TEST(GreedyPlan, RespectsMaxGpus) {
  WorkloadConfig config = test::small_ppo(2, 2, 4);
  config.hardware.max_gpus = 6;
  EXPECT_LE(active_gpu_count(greedy_plan(config, test::small_hardware())), 6);
  EXPECT_LE(active_gpu_count(concurrent_plan(config, test::small_hardware())), 6);
}

TEST(GreedyPlan, TradesTimeForMemoryUntilTheVerticesFitTogether) {
  const WorkloadConfig config = test::small_ppo(1, 1, 4);
  HardwareProfile profile = test::small_hardware();
  const Plan roomy = greedy_plan(config, profile);
  const PricedPlan priced = evaluate_plan(roomy, config, profile).priced;
  profile.memory_per_gpu = 0.8 * priced.peak_bytes;
  const Plan tight = greedy_plan(config, profile);
  const Evaluation evaluation = evaluate_plan(tight, config, profile);
  EXPECT_TRUE(evaluation.fits()) << evaluation.priced.overflow_text;
  EXPECT_NE(tight, roomy);
}

TEST(ConcurrentPlan, GivesEveryModelItsOwnNodes) {
  const WorkloadConfig config = test::small_ppo(1, 8, 4);
  const Graph graph = build_graph(config.policy, {});
  const Plan plan = concurrent_plan(config, test::small_hardware());
  for (std::size_t a = 0; a < graph.vertices.size(); ++a) {
    EXPECT_EQ(plan.vertices[a].placement.gpus, (Range{0, 3}));
    for (std::size_t b = 0; b < a; ++b) {
      const Range& x = plan.vertices[a].placement.nodes;
      const Range& y = plan.vertices[b].placement.nodes;
      if (graph.vertices[a].model == graph.vertices[b].model) {
        EXPECT_EQ(x, y);
      } else {
        EXPECT_TRUE(x.last < y.first || y.last < x.first);
      }
    }
  }
  EXPECT_EQ(active_gpu_count(plan), 32);
  EXPECT_EQ(plan.vertices[0].placement.nodes.first, 0);  // the actor comes first
}

TEST(ConcurrentPlan, SplitsTheGpusOfASingleNode) {
  const Plan plan = concurrent_plan(test::small_grpo(2), test::small_hardware());
  EXPECT_EQ(plan.vertices[0].placement.gpus, (Range{0, 0}));  // g_pi
  EXPECT_EQ(plan.vertices[1].placement.gpus, (Range{1, 1}));  // i_ref
  EXPECT_EQ(plan.vertices[2].placement.gpus, (Range{0, 0}));  // t_pi
}

TEST(ConcurrentPlan, SharesWhenThereAreFewerGpusThanModels) {
  for (const int gpus : {1, 2, 3}) {
    const WorkloadConfig config = test::small_ppo(1, 1, gpus);
    const Plan plan = concurrent_plan(config, test::small_hardware());
    EXPECT_TRUE(find_violations(plan, build_graph(config.policy, {}), config).empty());
    EXPECT_EQ(active_gpu_count(plan), gpus);
  }
}

}  // namespace
}  // namespace rpeg
