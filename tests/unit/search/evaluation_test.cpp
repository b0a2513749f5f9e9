#include "rpeg/search/evaluation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "rpeg/search/baseline.h"
#include "support/planning.h"

namespace rpeg {
namespace {

/// Two vertices on different atoms, a third on both, a period of 10.
struct HandMade {
  TaskGraph tasks;
  SteadyState steady;
};

HandMade hand_made() {
  HandMade made;
  const auto task = [](double seconds, std::vector<std::int32_t> atoms) {
    TimedTask result;
    result.time.total_s = seconds;
    result.atoms = std::move(atoms);
    return result;
  };
  made.tasks.tasks = {task(4, {0}), task(3, {1}), task(2, {0, 1})};
  made.tasks.atom_count = 2;
  made.tasks.atom_gpus = {3.0, 1.0};
  made.steady.period_s = 10.0;
  made.steady.order = {0, 1, 2};
  made.steady.shift = {0, 0, 0};
  made.steady.start_s = {0.0, 1.0, 5.0};
  return made;
}

TEST(IdleBefore, WeighsAtomsByTheirGpus) {
  const HandMade made = hand_made();
  const auto idle = idle_before(made.tasks, made.steady);
  EXPECT_DOUBLE_EQ(idle[0], 3.0);  // 2 ends at 7, 0 starts at 10
  EXPECT_DOUBLE_EQ(idle[1], 4.0);  // 2 ends at 7, 1 starts at 11
  EXPECT_DOUBLE_EQ(idle[2], 1.0);  // 3 GPUs wait from 4 to 5, 1 GPU from 4 to 5
}

TEST(IdleBefore, FollowsShiftsIntoEarlierIterations) {
  HandMade made = hand_made();
  made.steady.shift[2] = 1;  // in the period of iteration k, task 2 runs for iteration k - 1
  made.steady.start_s[2] = 15.0;
  EXPECT_DOUBLE_EQ(idle_before(made.tasks, made.steady)[0], 3.0);
}

TEST(EvaluatePlan, CountsEveryGpuSecondOnce) {
  const WorkloadConfig config = test::small_ppo(1, 2, 4);
  for (const Plan& plan : {greedy_plan(config, test::small_hardware()),
                           concurrent_plan(config, test::small_hardware())}) {
    const Evaluation evaluation = evaluate_plan(plan, config, test::small_hardware());
    const TaskGraph& graph = evaluation.priced.tasks;
    const auto idle = idle_before(graph, evaluation.steady);
    double busy = 0.0;
    double total = 0.0;
    for (std::size_t id = 0; id < graph.tasks.size(); ++id) {
      for (const std::int32_t atom : graph.tasks[id].atoms) {
        const double gpus = graph.atom_gpus[static_cast<std::size_t>(atom)];
        busy += gpus * graph.tasks[id].time.total_s;
        total += gpus * (graph.tasks[id].time.total_s + idle[id]);
      }
    }
    const double period = evaluation.metrics.iteration_time_s;
    EXPECT_NEAR(total, evaluation.metrics.active_gpus * period, 1e-6 * total);
    EXPECT_NEAR(evaluation.metrics.gpu_utilization * total, busy, 1e-6 * total);
  }
}

TEST(EvaluatePlan, CountsTokensOfTheWorkload) {
  WorkloadConfig config = test::small_ppo(1, 1, 2);
  config.workload.gen_quantiles = {{0.5, 16.0}, {1.0, 32.0}};
  config.hardware.gpu_hour_price = 3.6;
  const Plan plan = greedy_plan(config, test::small_hardware());
  const PlanMetrics metrics = evaluate_plan(plan, config, test::small_hardware()).metrics;
  // 16 sequences × (16 + 32) tokens; expected response 0.5 · 8 + 0.5 · 24 = 16 tokens.
  EXPECT_NEAR(metrics.tokens_per_s * metrics.iteration_time_s, 768.0, 1e-9);
  EXPECT_NEAR(metrics.effective_tokens_per_s * metrics.iteration_time_s, 512.0, 1e-9);
  // 2 GPUs at 0.001 a second each.
  EXPECT_NEAR(
      *metrics.cost_per_million_tokens, 0.002 * metrics.iteration_time_s / 768.0 * 1e6, 1e-12);
}

TEST(EvaluatePlan, CountsBothResponsesOfADpoPair) {
  WorkloadConfig config = test::small_ppo(1, 1, 1);
  config.policy.algorithm = Algorithm::kDpo;
  EXPECT_EQ(tokens_per_iteration(config, 32.0), 8 * 2 * (16 + 32));
}

TEST(EvaluatePlan, SharesOfTheCriticalCycleAddUpToOne) {
  const WorkloadConfig config = test::small_ppo(1, 2, 4);
  const Plan plan = concurrent_plan(config, test::small_hardware());
  const auto shares = critical_shares(evaluate_plan(plan, config, test::small_hardware()));
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1.0, 1e-12);
}

TEST(MakePlanFile, HoldsTheScheduleAndReadsBack) {
  const WorkloadConfig config = test::small_ppo(1, 2, 4);
  const Plan plan = concurrent_plan(config, test::small_hardware());
  const Evaluation evaluation = evaluate_plan(plan, config, test::small_hardware());
  const PlanFile file = make_plan_file(evaluation, config);
  EXPECT_EQ(file.schedule.size(), evaluation.priced.tasks.tasks.size());
  EXPECT_EQ(file.schedule.front().shift, 0);
  EXPECT_EQ(file.predicted.iteration_time_s, evaluation.steady.period_s);
  const PlanFile read = parse_plan_file(plan_file_text(file, nullptr), "plan.yaml");
  EXPECT_EQ(read.plan, file.plan);
  EXPECT_EQ(read.schedule, file.schedule);
  EXPECT_EQ(read.predicted, file.predicted);
}

}  // namespace
}  // namespace rpeg
