#include "search/evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>
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

/// Dependencies, and the order of the period on every atom with its way round.
std::vector<TaskEdge> arcs_of_order(const TaskGraph& graph, const SteadyState& steady) {
  std::vector<TaskEdge> arcs = graph.edges;
  for (std::int32_t atom = 0; atom < graph.atom_count; ++atom) {
    std::vector<std::int32_t> users;
    for (const std::int32_t id : steady.order) {
      const auto& atoms = graph.tasks[static_cast<std::size_t>(id)].atoms;
      if (std::ranges::find(atoms, atom) != atoms.end()) users.push_back(id);
    }
    for (std::size_t i = 0; i < users.size(); ++i) {
      const std::int32_t next = users[(i + 1) % users.size()];
      const std::int64_t wraps = i + 1 == users.size() ? 1 : 0;
      arcs.push_back({users[i],
                      next,
                      wraps + steady.shift[static_cast<std::size_t>(users[i])] -
                          steady.shift[static_cast<std::size_t>(next)]});
    }
  }
  return arcs;
}

TEST(Evaluator, PeriodsAreTheMaximumCycleRatiosOfTheirOrders) {
  const WorkloadConfig config = walk_job(Algorithm::kPpo);
  const HardwareProfile profile = tight_hardware();
  Evaluator evaluator(config, profile);
  Rng rng(8);
  Plan plan;
  for (int i = 0; i < 10000; ++i) {
    test::change_plan(&plan, config, rng);
    const Evaluation full = evaluate_plan(plan, config, profile);
    const TaskGraph& graph = full.priced.tasks;
    std::vector<double> duration_s;
    for (const TimedTask& task : graph.tasks) {
      duration_s.push_back(std::max(1e-9, task.time.total_s));  // the simulator's least
    }
    const double ratio =
        maximum_cycle_ratio(duration_s, arcs_of_order(graph, full.steady), nullptr);
    ASSERT_NEAR(evaluator.score(plan).period_s / ratio, 1.0, 1e-9) << "plan " << i;
  }
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
