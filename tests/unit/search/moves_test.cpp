#include "search/moves.h"

#include <gtest/gtest.h>

#include <map>

#include "search/baselines.h"
#include "search/chain.h"
#include "support/planning.h"

namespace rpeg {
namespace {

/// Walks at random and checks every plan on the way.
void walk(const WorkloadConfig& config, int steps) {
  const HardwareProfile profile = test::small_hardware();
  search::SubPlanTable table(config, profile);
  search::Mover mover(table);
  Rng rng(23);
  Plan plan = mover.admit(search::greedy(table));
  int moved = 0;
  for (int i = 0; i < steps; ++i) {
    const auto focus =
        static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(plan.vertices.size())));
    const auto next = mover.draw(plan, focus, rng);
    if (!next) continue;
    ++moved;
    ASSERT_NE(*next, plan);
    const Graph graph = build_graph(config.policy, next->structure);
    for (const Violation& violation : find_violations(*next, graph, config)) {
      FAIL() << violation.vertex << ": " << violation.message;
    }
    plan = *next;
  }
  EXPECT_GT(moved, steps / 20);
}

TEST(Mover, DrawsOnlyValidPlans) {
  walk(test::small_ppo(2, 3, 4), 2000);
  walk(test::small_grpo(2), 500);
}

TEST(Mover, RespectsTheLimitsOfTheConfiguration) {
  WorkloadConfig config = test::small_ppo(2, 3, 4);
  config.optimizer.max_tp = 2;
  config.optimizer.max_pp = 1;
  config.hardware.max_gpus = 10;
  walk(config, 2000);
}

TEST(Mover, StaysAtTheStalenessCandidates) {
  WorkloadConfig config = test::small_ppo(1, 1, 2);
  config.optimizer.staleness_actor = {1, 3};
  config.optimizer.staleness_critic = {2};
  const HardwareProfile profile = test::small_hardware();
  search::SubPlanTable table(config, profile);
  search::Mover mover(table);
  Rng rng(29);
  Plan plan = mover.admit(search::greedy(table));
  EXPECT_EQ(plan.structure, (Structure{1, 2}));
  std::map<std::int64_t, int> seen;
  for (int i = 0; i < 500; ++i) {
    if (const auto next = mover.draw(plan, 0, rng)) plan = *next;
    EXPECT_EQ(plan.structure.tau_critic, 2);
    ++seen[plan.structure.tau_actor];
  }
  EXPECT_EQ(seen.size(), 2U);
  EXPECT_GT(seen[1], 0);
  EXPECT_GT(seen[3], 0);
}

TEST(Mover, FindsNoNeighbourWhereThereIsOnePlan) {
  WorkloadConfig config = test::small_grpo(1);
  config.workload.batch_size = 1;
  config.workload.samples_per_prompt = 1;
  const HardwareProfile profile = test::small_hardware();
  search::SubPlanTable table(config, profile);
  search::Mover mover(table);
  Rng rng(31);
  const Plan plan = search::greedy(table);
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(mover.draw(plan, 0, rng).has_value());
}

TEST(PlanKey, DiffersWhereverPlansDiffer) {
  const WorkloadConfig config = test::small_ppo(2, 3, 4);
  const HardwareProfile profile = test::small_hardware();
  search::SubPlanTable table(config, profile);
  search::Mover mover(table);
  Rng rng(37);
  Plan plan = search::greedy(table);
  std::map<std::string, Plan> seen;
  for (int i = 0; i < 1000; ++i) {
    if (const auto next = mover.draw(plan, static_cast<std::size_t>(rng.below(6)), rng)) {
      plan = *next;
    }
    const auto [place, is_new] = seen.try_emplace(search::plan_key(plan), plan);
    ASSERT_EQ(place->second, plan);
  }
}

}  // namespace
}  // namespace rpeg
