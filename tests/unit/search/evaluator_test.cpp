#include "search/evaluator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "rpeg/base/error.h"
#include "rpeg/search/bound.h"
#include "rpeg/search/evaluation.h"
#include "support/planning.h"
#include "support/random_plan.h"

namespace rpeg {
namespace {

using search::Evaluator;
using search::Score;

/// Two racks of three nodes of four GPUs, lengths with two inner points, every model.
WorkloadConfig job(Algorithm algorithm) {
  WorkloadConfig config = test::small_ppo(2, 3, 4);
  config.policy.algorithm = algorithm;
  config.policy.recompute_logprobs = algorithm == Algorithm::kGrpo;
  config.workload.batch_size = 32;
  config.workload.gen_quantiles = {{0.5, 8.0}, {0.8, 20.0}, {1.0, 32.0}};
  return config;
}

/// So little memory that some plans overflow and some generate with fewer slots than sequences.
HardwareProfile tight_hardware() {
  HardwareProfile profile = test::small_hardware();
  profile.memory_per_gpu = 3.5e6;
  profile.reserve_bytes = 1e5;
  profile.overlap_slowdown = 1.2;
  return profile;
}

struct Walk {
  int overflows = 0;
  int limited = 0;  ///< generated with fewer slots than sequences
  int cut = 0;
};

/// Changes a plan again and again and compares every score with the evaluation from scratch.
Walk compare_scores(const WorkloadConfig& config, int moves, std::uint64_t seed) {
  const HardwareProfile profile = tight_hardware();
  Evaluator evaluator(config, profile);
  Rng rng(seed);
  Plan plan;
  Walk walk;
  for (int move = 0; move < moves; ++move) {
    test::change_plan(&plan, config, rng);
    const Score score = evaluator.score(plan);
    search::check_score(score, plan, config, profile);
    if (score.overflow > 0.0) ++walk.overflows;
    if (plan.structure.cuts != 0) ++walk.cut;
    if (move % 16 != 0) continue;
    const Evaluation full = evaluate_plan(plan, config, profile);
    // The bound adds up seconds, the simulator whole nanoseconds: half of one for each of 64 tasks.
    EXPECT_GE(score.period_s + 32e-9, plan_bound_s(full.priced.tasks)) << "move " << move;
    if (full.priced.generation_slots < replica_batch(plan.vertices[0], config)) ++walk.limited;
  }
  return walk;
}

TEST(Evaluator, EqualsTheFullEvaluationAfterRandomMoves) {
  const Walk ppo = compare_scores(job(Algorithm::kPpo), 6000, 1);
  EXPECT_GT(ppo.overflows, 100);
  EXPECT_LT(ppo.overflows, 5900);
  EXPECT_GT(ppo.limited, 10);
  EXPECT_GT(ppo.cut, 1000);
  compare_scores(job(Algorithm::kGrpo), 2500, 2);
  WorkloadConfig dpo = job(Algorithm::kDpo);
  compare_scores(dpo, 1000, 3);
  dpo.policy.dpo_mode = DpoMode::kOnline;
  dpo.workload.samples_per_prompt = 4;
  compare_scores(dpo, 500, 4);
}

TEST(EvaluatorSlow, EqualsTheFullEvaluationAfterAMillionMoves) {
  compare_scores(job(Algorithm::kPpo), 800000, 11);
  compare_scores(job(Algorithm::kGrpo), 200000, 12);
}

TEST(Evaluator, CountsGpusForTheObjectiveCost) {
  WorkloadConfig config = job(Algorithm::kPpo);
  config.optimizer.objective = Objective::kCost;
  compare_scores(config, 500, 5);
}

TEST(Evaluator, SharesOfTheCriticalCycleAddUpToOne) {
  const WorkloadConfig config = job(Algorithm::kPpo);
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
  const WorkloadConfig config = job(Algorithm::kPpo);
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
