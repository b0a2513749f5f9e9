#include "search/evaluator.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rpeg/base/error.h"
#include "support/random_plan.h"
#include "unit/search/score_walk.h"

namespace rpeg {
namespace {

using search::Evaluator;
using search::Score;
using test::compare_scores;
using test::tight_hardware;
using test::Walk;
using test::walk_job;

TEST(Evaluator, EqualsTheFullEvaluationAfterRandomMoves) {
  const Walk ppo = compare_scores(walk_job(Algorithm::kPpo), 6000, 1);
  EXPECT_GT(ppo.overflows, 100);
  EXPECT_LT(ppo.overflows, 5900);
  EXPECT_GT(ppo.limited, 10);
  EXPECT_GT(ppo.cut, 1000);
  compare_scores(walk_job(Algorithm::kGrpo), 2500, 2);
  WorkloadConfig dpo = walk_job(Algorithm::kDpo);
  compare_scores(dpo, 1000, 3);
  dpo.policy.dpo_mode = DpoMode::kOnline;
  dpo.workload.samples_per_prompt = 4;
  compare_scores(dpo, 500, 4);
}

TEST(Evaluator, CountsGpusForTheObjectiveCost) {
  WorkloadConfig config = walk_job(Algorithm::kPpo);
  config.optimizer.objective = Objective::kCost;
  compare_scores(config, 500, 5);
}

TEST(Evaluator, SharesOfTheCriticalCycleAddUpToOne) {
  const WorkloadConfig config = walk_job(Algorithm::kPpo);
  const HardwareProfile profile = tight_hardware();
  Evaluator evaluator(config, profile);
  Rng rng(6);
  Plan plan;
  for (int move = 0; move < 200; ++move) {
    test::change_plan(&plan, config, rng);
    float sum = 0.0F;
    for (const float share : evaluator.score(plan).critical) sum += share;
    ASSERT_NEAR(sum, 1.0F, 1e-5F);
  }
}

TEST(CheckScore, RefusesAnotherScore) {
  const WorkloadConfig config = walk_job(Algorithm::kPpo);
  const HardwareProfile profile = tight_hardware();
  Rng rng(7);
  Plan plan;
  test::change_plan(&plan, config, rng);
  Score score = search::full_score(plan, config, profile);
  EXPECT_NO_THROW(search::check_score(score, plan, config, profile));
  score.period_s = std::nextafter(score.period_s, 1e9);
  EXPECT_THROW(search::check_score(score, plan, config, profile), Error);
}

}  // namespace
}  // namespace rpeg
