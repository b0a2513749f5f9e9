#include "rpeg/search/bound.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rpeg/search/baseline.h"
#include "search/baselines.h"
#include "search/chain.h"
#include "search/frontier.h"
#include "search/moves.h"
#include "search/relaxed_frontier.h"
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

/// What no plan alone on its block beats, with and without a look at every shape.
TEST(SpaceBound, RelaxedFrontiersLieBelowTheExactOnes) {
  Rng rng(41);
  int points = 0;
  for (int i = 0; i < 60; ++i) {
    const test::SmallSpace small = test::random_small_space(rng);
    const search::Space space = search::build_space(small.config, {});
    search::SubPlanTable table(space, small.profile);
    for (std::size_t kind = 0; kind < space.kinds.size(); ++kind) {
      const search::KindFrontiers exact = search::kind_frontiers(table, kind);
      const search::KindFrontiers relaxed = search::relaxed_frontiers(table, kind);
      const auto check = [&](const search::Frontier& a, const search::Frontier& b) {
        for (const search::Point& point : a) {
          ++points;
          EXPECT_LE(search::gpu_s_within(b, point.time_s * (1 + 1e-9)), point.gpu_s * (1 + 1e-9))
              << small.name << ", " << space.kinds[kind].name;
        }
      };
      check(exact.whole, relaxed.whole);
      check(exact.cut, relaxed.cut);
      check(exact.last_chunk, relaxed.last_chunk);
    }
  }
  EXPECT_GT(points, 200);
}

/// The frontiers take the largest dp of a range for all of it.
TEST(SpaceBound, RelaxedTimeDoesNotGrowWithReplicas) {
  WorkloadConfig config = test::small_grpo(4);
  config.workload.batch_size = 120;
  const search::Space space = search::build_space(config, {});
  const search::SubPlanTable table(space, test::small_hardware());
  const HardwareProfile profile = search::with_free_wires(test::small_hardware());
  for (std::size_t kind = 0; kind < space.kinds.size(); ++kind) {
    for (const int pp : {1, 2, 4}) {
      double last_s = 1e300;
      for (int dp = 1; dp <= 60; ++dp) {
        const double time_s = search::relaxed_time_s(table, kind, {dp, pp, 2}, pp, profile);
        EXPECT_LE(time_s, last_s * (1 + 1e-9)) << space.kinds[kind].name << " " << dp << " " << pp;
        last_s = time_s;
      }
    }
  }
}

TEST(SpaceBound, IsMeaningfulForClustersTooLargeToPrice) {
  WorkloadConfig config = test::small_grpo(8);
  config.hardware.nodes_per_rack = 64;
  config.hardware.racks = 64;
  config.workload.batch_size = 65536;
  const SpaceBound bound = space_bound(config, test::small_hardware());
  const double period =
      evaluate_plan(greedy_plan(config, test::small_hardware()), config, test::small_hardware())
          .steady.period_s;
  EXPECT_GT(bound.period_s, 0.05 * period);
  EXPECT_LE(bound.period_s, period);
  EXPECT_NE(bound.reason.find("network between nodes not counted"), std::string::npos);
}

}  // namespace
}  // namespace rpeg
