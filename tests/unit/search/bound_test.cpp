#include "rpeg/search/bound.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rpeg/search/baseline.h"
#include "search/baselines.h"
#include "search/chain.h"
#include "search/frontier.h"
#include "search/moves.h"
#include "small_spaces.h"
#include "support/planning.h"

namespace rpeg {
namespace {

TEST(Pareto, KeepsWhatNothingElseBeats) {
  const search::Frontier frontier =
      search::pareto({{2.0, 8.0}, {1.0, 10.0}, {3.0, 9.0}, {2.0, 7.0}, {4.0, 7.0}});
  ASSERT_EQ(frontier.size(), 2U);
  EXPECT_EQ(search::gpu_s_within(frontier, 1.5), 10.0);
  EXPECT_EQ(search::gpu_s_within(frontier, 2.0), 7.0);
  EXPECT_TRUE(std::isinf(search::gpu_s_within(frontier, 0.5)));
}

/// One GPU, one plan a vertex: the period is the sum of the vertices, and so is the bound.
TEST(SpaceBound, IsThePeriodWhereThereIsOnePlan) {
  WorkloadConfig config = test::small_grpo(1);
  config.workload.batch_size = 1;
  config.workload.samples_per_prompt = 1;
  const Plan plan = greedy_plan(config, test::small_hardware());
  const double period = evaluate_plan(plan, config, test::small_hardware()).steady.period_s;
  const SpaceBound bound = space_bound(config, test::small_hardware());
  EXPECT_NEAR(bound.period_s, period, 1e-6 * period);
  EXPECT_LE(bound.period_s, period + 1e-8);
  EXPECT_FALSE(bound.reason.empty());
}

struct Checked {
  int plans = 0;
  int fitting = 0;
};

/// Draws plans of a space at random and compares each with the bound of the space and its own.
Checked check_random_plans(const test::SmallSpace& small, int plans, Rng& rng) {
  const search::Space space = search::build_space(small.config, {});
  search::Workbench bench(space, small.profile);
  search::Mover mover(bench.table);
  const SpaceBound bound = space_bound(small.config, small.profile);
  Checked checked;
  Plan plan = search::greedy(bench.table, bench.evaluator);
  Plan next;
  for (int i = 0; i < plans; ++i) {
    const auto focus =
        static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(plan.vertices.size())));
    if (mover.draw(plan, focus, rng, next)) plan = next;
    const Evaluation evaluation = evaluate_plan(plan, small.config, small.profile);
    const double period = evaluation.steady.period_s;
    EXPECT_LE(plan_bound_s(evaluation.priced.tasks), period * (1 + 1e-9) + 1e-8);
    ++checked.plans;
    if (!evaluation.fits()) continue;
    ++checked.fitting;
    EXPECT_LE(bound.period_s, period * (1 + 1e-9) + 1e-8)
        << bound.reason << "; tau " << plan.structure.tau_actor << ", cuts " << plan.structure.cuts
        << ", share " << plan.structure.ac_share;
  }
  return checked;
}

TEST(SpaceBound, IsBelowTenThousandRandomPlans) {
  Rng rng(97);
  Checked all;
  while (all.plans < 10000) {
    const Checked some = check_random_plans(test::random_small_space(rng), 100, rng);
    all.plans += some.plans;
    all.fitting += some.fitting;
  }
  EXPECT_GT(all.fitting, 5000);
}

TEST(SpaceBound, UsesFlopsForClustersTooLargeToPrice) {
  WorkloadConfig config = test::small_grpo(8);
  config.hardware.nodes_per_rack = 64;
  config.hardware.racks = 64;
  config.workload.batch_size = 65536;
  const SpaceBound bound = space_bound(config, test::small_hardware());
  const double period =
      evaluate_plan(greedy_plan(config, test::small_hardware()), config, test::small_hardware())
          .steady.period_s;
  EXPECT_GT(bound.period_s, 0.0);
  EXPECT_LE(bound.period_s, period);
  EXPECT_NE(bound.reason.find("FLOPs"), std::string::npos);
}

}  // namespace
}  // namespace rpeg
