#include "rpeg/search/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "rpeg/search/baseline.h"
#include "support/planning.h"

namespace rpeg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using testing::UnorderedElementsAre;

/// GRPO with a verifier and no reference: g_pi and t_pi, 8 sequences.
WorkloadConfig two_vertices(int nodes, int gpus) {
  WorkloadConfig config = test::small_grpo(gpus);
  config.hardware.nodes_per_rack = nodes;
  config.policy.kl_reference = false;
  config.workload.gen_quantiles = {{0.5, 8}, {1.0, 32}};
  return config;
}

constexpr Placement kNode0{{0, 0}, {0, 0}, {0, 1}};
constexpr Placement kNode1{{0, 0}, {1, 1}, {0, 1}};

double period(const Plan& plan, const WorkloadConfig& config) {
  return evaluate_plan(plan, config, test::small_hardware()).steady.period_s;
}

TEST(ComparePlans, HasOneDifferencePerDecisionWithItsEffect) {
  const WorkloadConfig config = two_vertices(2, 2);
  // Together on node 0 at τ = 0, against apart at τ = 1 with another split of training.
  const Plan plan{{0, 0}, {{{2, 1, 1}, 1, kNode0}, {{2, 1, 1}, 1, kNode0}}};
  const Plan other{{1, 0}, {{{2, 1, 1}, 1, kNode0}, {{1, 1, 2}, 2, kNode1}}};
  const auto differences = compare_plans(plan, other, config, test::small_hardware());
  ASSERT_EQ(differences.size(), 3U);
  const auto effect = [&](const std::string& what) {
    const auto found = std::ranges::find(differences, what, &Difference::what);
    EXPECT_NE(found, differences.end()) << what;
    return found == differences.end() ? 0.0 : found->effect_s;
  };
  const double own = period(plan, config);
  const Plan with_tau{{1, 0}, plan.vertices};
  EXPECT_DOUBLE_EQ(effect("tau actor 0 -> 1"), period(with_tau, config) - own);
  const Plan with_block{{0, 0}, {plan.vertices[0], {{1, 1, 2}, 1, kNode1}}};
  EXPECT_DOUBLE_EQ(effect("t_pi block r0 n[0-0] g[0-1] (2,1,1) -> r0 n[1-1] g[0-1] (1,1,2)"),
                   period(with_block, config) - own);
  const Plan with_pieces{{0, 0}, {plan.vertices[0], {{2, 1, 1}, 2, kNode0}}};
  EXPECT_DOUBLE_EQ(effect("t_pi micro_batches 1 -> 2"), period(with_pieces, config) - own);
  for (std::size_t i = 1; i < differences.size(); ++i) {
    EXPECT_GE(std::abs(differences[i - 1].effect_s), std::abs(differences[i].effect_s));
  }
}

TEST(ComparePlans, OfEqualPlansIsEmpty) {
  const WorkloadConfig config = two_vertices(2, 2);
  const Plan plan{{0, 0}, {{{2, 1, 1}, 1, kNode0}, {{2, 1, 1}, 1, kNode1}}};
  EXPECT_THAT(compare_plans(plan, plan, config, test::small_hardware()), IsEmpty());
}

TEST(ComparePlans, SaysWhatDoesNotFitAlone) {
  const WorkloadConfig config = two_vertices(1, 2);
  HardwareProfile small = test::small_hardware();
  const Plan plan{{0, 0}, {{{1, 1, 2}, 1, kNode0}, {{1, 1, 2}, 1, kNode0}}};
  const Plan other{{0, 0}, {{{1, 1, 2}, 1, kNode0}, {{2, 1, 1}, 1, kNode0}}};
  const double tight = evaluate_plan(plan, config, small).metrics.peak_bytes;
  ASSERT_LT(tight, evaluate_plan(other, config, small).metrics.peak_bytes);
  const double limit_share = evaluate_plan(plan, config, small).priced.limit_bytes;
  small.memory_per_gpu *= 1.001 * tight / limit_share;
  ASSERT_TRUE(evaluate_plan(plan, config, small).fits());
  const auto differences = compare_plans(plan, other, config, small);
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0].what, "t_pi split (1,1,2) -> (2,1,1)");
  EXPECT_FALSE(differences[0].fits);
  EXPECT_TRUE(differences[0].valid);
}

TEST(ComparePlans, MarksWhatHoldsOnlyTogether) {
  const WorkloadConfig config = two_vertices(2, 4);
  // dp 8 leaves one sequence per replica: 8 micro-batches need dp 1, and come with it.
  const Plan plan{{0, 0}, {{{8, 1, 1}, 1, {{0, 0}, {0, 1}, {0, 3}}}, {{1, 1, 1}, 1, {}}}};
  Plan other = plan;
  other.vertices[0] = {{1, 2, 4}, 8, {{0, 0}, {0, 1}, {0, 3}}};
  EXPECT_THAT(plan_differences(plan, other, config),
              ElementsAre("g_pi split (8,1,1) -> (1,2,4)", "g_pi micro_batches 1 -> 8"));
  const auto differences = compare_plans(plan, other, config, test::small_hardware());
  ASSERT_EQ(differences.size(), 2U);
  EXPECT_TRUE(differences[0].valid);
  EXPECT_FALSE(differences[1].valid);
  EXPECT_EQ(differences[1].effect_s, 0.0);
  // The other way round the split takes the micro-batches along.
  EXPECT_THAT(plan_differences(other, plan, config),
              ElementsAre("g_pi split (1,2,4) -> (8,1,1), micro_batches 8 -> 1"));
}

TEST(PlanDifferences, NamesEveryDecisionOfTheStructure) {
  WorkloadConfig config = test::small_ppo(1, 2, 2);
  config.policy.allow_ac_share = true;
  config.workload.gen_quantiles = {{0.5, 8}, {0.75, 16}, {1.0, 32}};
  const VertexPlan one{{1, 1, 1}, 1, {}};
  const Plan apart{{0, 1, false, 0b01}, std::vector<VertexPlan>(6, one)};
  const Plan shared{{1, 1, true, 0b11}, std::vector<VertexPlan>(5, one)};
  EXPECT_THAT(plan_differences(apart, shared, config),
              UnorderedElementsAre(
                  "ac_share false -> true", "tau actor 0 -> 1", "cuts [0.5] -> [0.5, 0.75]"));
  EXPECT_THAT(plan_differences(shared, apart, config),
              UnorderedElementsAre(
                  "ac_share true -> false", "tau actor 1 -> 0", "cuts [0.5, 0.75] -> [0.5]"));
}

/// Memory such that `plan` overflows and `other` just fits.
HardwareProfile memory_for(const Plan& other, const WorkloadConfig& config) {
  HardwareProfile profile = test::small_hardware();
  const Evaluation evaluation = evaluate_plan(other, config, profile);
  profile.memory_per_gpu *= 1.001 * evaluation.metrics.peak_bytes / evaluation.priced.limit_bytes;
  return profile;
}

TEST(SmallestRelief, IsMoreMicroBatchesWhereTheySuffice) {
  const WorkloadConfig config = two_vertices(1, 2);
  const Plan plan{{0, 0}, {{{2, 1, 1}, 1, kNode0}, {{2, 1, 1}, 1, kNode0}}};
  Plan divided = plan;
  divided.vertices[1].micro_batches = 2;
  const HardwareProfile profile = memory_for(divided, config);
  ASSERT_FALSE(evaluate_plan(plan, config, profile).fits());
  const Relief relief = smallest_relief(plan, config, profile);
  EXPECT_THAT(relief.change, StartsWith("t_pi: micro_batches 1 -> "));
  EXPECT_EQ(relief.overflow, 0.0);
  const Evaluation evaluation = evaluate_plan(relief.plan, config, profile);
  EXPECT_TRUE(evaluation.fits());
  EXPECT_EQ(relief.period_s, evaluation.steady.period_s);
}

TEST(SmallestRelief, IsAnotherSplitWhereMicroBatchesDoNotSuffice) {
  const WorkloadConfig config = two_vertices(1, 2);
  const Plan plan{{0, 0}, {{{1, 1, 2}, 4, kNode0}, {{2, 1, 1}, 4, kNode0}}};
  Plan divided = plan;
  divided.vertices[1] = {{1, 1, 2}, 4, kNode0};
  const HardwareProfile profile = memory_for(divided, config);
  ASSERT_FALSE(evaluate_plan(plan, config, profile).fits());
  const Relief relief = smallest_relief(plan, config, profile);
  EXPECT_THAT(relief.change, HasSubstr("split ("));
  EXPECT_TRUE(evaluate_plan(relief.plan, config, profile).fits());
}

TEST(SmallestRelief, LeavesTheLeastWhereNothingFits) {
  const WorkloadConfig config = two_vertices(1, 2);
  const Plan plan{{0, 0}, {{{2, 1, 1}, 1, kNode0}, {{2, 1, 1}, 1, kNode0}}};
  HardwareProfile profile = test::small_hardware();
  profile.memory_per_gpu = 1e4;
  const Relief relief = smallest_relief(plan, config, profile);
  EXPECT_GT(relief.overflow, 0.0);
  EXPECT_LT(relief.overflow, evaluate_plan(plan, config, profile).priced.overflow);
  EXPECT_NE(relief.change, "");
}

TEST(SmallestRelief, OfAPlanThatFitsIsNothing) {
  const WorkloadConfig config = two_vertices(1, 2);
  const Plan plan{{0, 0}, {{{2, 1, 1}, 1, kNode0}, {{2, 1, 1}, 1, kNode0}}};
  const Relief relief = smallest_relief(plan, config, test::small_hardware());
  EXPECT_EQ(relief.change, "");
  EXPECT_EQ(relief.plan, plan);
}

TEST(Resemblance, RecognisesTheStylesThemselves) {
  const WorkloadConfig config = test::small_ppo(1, 4, 2);
  const HardwareProfile profile = test::small_hardware();
  for (const char* name : {"greedy", "concurrent"}) {
    const Evaluation evaluation = evaluate_plan(named_plan(name, config, profile), config, profile);
    const std::string text = resemblance(evaluation, config, profile);
    EXPECT_THAT(text, HasSubstr(std::string("(") + name + ")"));
    EXPECT_THAT(text, HasSubstr("15 of 15 pairs"));  // six vertices
    EXPECT_THAT(text, HasSubstr("It is that plan."));
  }
}

TEST(Resemblance, TellsTheEffectOfEachDifference) {
  const WorkloadConfig config = test::small_ppo(1, 4, 2);
  const HardwareProfile profile = test::small_hardware();
  Plan plan = named_plan("concurrent", config, profile);
  const Plan style = plan;
  plan.structure.tau_actor = 1;
  const Evaluation evaluation = evaluate_plan(plan, config, profile);
  const double own = evaluation.steady.period_s;
  const double change = 100.0 * (evaluate_plan(style, config, profile).steady.period_s - own) / own;
  const std::string text = resemblance(evaluation, config, profile);
  EXPECT_THAT(text, HasSubstr("(concurrent)"));
  EXPECT_THAT(text, HasSubstr("tau actor 1 -> 0 would make it"));
  char number[32];
  std::snprintf(number, sizeof number, "%.1f %% slower", change);
  EXPECT_THAT(text, HasSubstr(number));
}

TEST(Resemblance, PointsAtAStyleThatIsFaster) {
  const WorkloadConfig config = test::small_ppo(1, 4, 2);
  const HardwareProfile profile = test::small_hardware();
  const Plan style = named_plan("greedy", config, profile);
  const double style_s = evaluate_plan(style, config, profile).steady.period_s;
  Plan plan = style;
  plan.vertices.front().parallelism = {1, 1, 1};  // generation on one GPU
  plan.vertices.front().micro_batches = 1;
  plan.vertices.front().placement = {{0, 0}, {0, 0}, {0, 0}};
  const Evaluation slower = evaluate_plan(plan, config, profile);
  ASSERT_TRUE(slower.fits());
  ASSERT_GT(slower.steady.period_s, 1.01 * style_s);
  EXPECT_THAT(resemblance(slower, config, profile), HasSubstr("--start greedy"));
  EXPECT_THAT(resemblance(evaluate_plan(style, config, profile), config, profile),
              testing::Not(HasSubstr("--start")));
}

TEST(Resemblance, DoesNotPointAtAStyleThatTheSearchMayNotTake) {
  WorkloadConfig config = test::small_ppo(1, 4, 2);
  const HardwareProfile profile = test::small_hardware();
  const Plan style = named_plan("split-async", config, profile);
  ASSERT_EQ(style.structure.tau_actor, 1);
  const double style_s = evaluate_plan(style, config, profile).steady.period_s;
  Plan plan = style;  // the same pools, in lockstep
  plan.structure.tau_actor = 0;
  const Evaluation slower = evaluate_plan(plan, config, profile);
  ASSERT_TRUE(slower.fits());
  ASSERT_GT(slower.steady.period_s, 1.01 * style_s);
  config.optimizer.staleness_actor = {0};
  const std::string text = resemblance(slower, config, profile);
  EXPECT_THAT(text, HasSubstr("(split-async)"));
  EXPECT_THAT(text, HasSubstr("not among optimizer.staleness_candidates"));
  config.optimizer.staleness_actor = {0, 1};
  EXPECT_THAT(resemblance(slower, config, profile), HasSubstr("--start split-async"));
}

}  // namespace
}  // namespace rpeg
