#pragma once

#include <gtest/gtest.h>

#include "rpeg/search/bound.h"
#include "rpeg/search/evaluation.h"
#include "search/evaluator.h"
#include "support/planning.h"
#include "support/random_factors.h"
#include "support/random_plan.h"

// Random walks over plans on which remembered and full evaluations are compared.

namespace rpeg::test {

/// Two racks of three nodes of four GPUs, lengths with two inner points, every model.
inline WorkloadConfig walk_job(Algorithm algorithm) {
  WorkloadConfig config = small_ppo(2, 3, 4);
  config.policy.algorithm = algorithm;
  config.policy.recompute_logprobs = algorithm == Algorithm::kGrpo;
  config.workload.batch_size = 32;
  config.workload.gen_quantiles = {{0.5, 8.0}, {0.8, 20.0}, {1.0, 32.0}};
  return config;
}

/// So little memory that some plans overflow and some generate with fewer slots than sequences.
inline HardwareProfile tight_hardware() {
  HardwareProfile profile = small_hardware();
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
inline Walk compare_scores(const WorkloadConfig& config, int moves, std::uint64_t seed) {
  HardwareProfile profile = tight_hardware();
  Rng rng(seed);
  if (seed % 2 == 0) profile.observed = random_factors(rng);
  search::Evaluator evaluator(config, profile);
  Plan plan;
  Walk walk;
  for (int move = 0; move < moves; ++move) {
    change_plan(&plan, config, rng);
    const search::Score score = evaluator.score(plan);
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

}  // namespace rpeg::test
