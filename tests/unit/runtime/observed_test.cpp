#include "runtime/observed.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rpeg/job/tasks.h"
#include "rpeg/profile/hardware_profile.h"
#include "rpeg/search/evaluation.h"
#include "support/random_job.h"

namespace rpeg {
namespace {

/// GRPO with a reference: generation on one node, the rest on another.
WorkloadConfig grpo_inputs() {
  WorkloadConfig inputs = test::small_grpo(2);
  inputs.hardware.nodes_per_rack = 2;
  return inputs;
}

Plan two_node_plan() {
  const VertexPlan here{{2, 1, 1}, 1, {{0, 0}, {0, 0}, {0, 1}}};
  const VertexPlan there{{1, 1, 2}, 1, {{0, 0}, {1, 1}, {0, 1}}};
  return {{}, {here, there, there}};
}

/// The job of the plan with its predictions.
Job predicted_job(const HardwareProfile& profile) {
  Job job = test::job_of(grpo_inputs(), two_node_plan());
  const Evaluation evaluation = evaluate_plan(job.plan, job.inputs, profile);
  job.predicted.iteration_time_s = evaluation.steady.period_s;
  for (const TimedTask& task : evaluation.priced.tasks.tasks) {
    job.predicted.breakdown[task.name] = {.compute_s = task.time.compute_s,
                                          .comm_s = task.time.comm_s,
                                          .bubble_s = task.time.bubble_s};
  }
  return job;
}

double slowdown_of(const std::string& task) {
  if (task == "g_pi") return 3.0;
  if (task == "i_ref") return 0.5;
  return task == "t_pi" ? 1.25 : 20.0;
}

/// What a run would have measured: each class slower or faster by a factor, 10 % up and down.
TraceAnalysis synthetic_run(const Job& job) {
  TraceAnalysis measured;
  for (const auto& [task, predicted] : job.predicted.breakdown) {
    const double seconds = slowdown_of(task) * predicted_task_s(job, task);
    measured.tasks.push_back({task, {10.0 * seconds, 0.9 * seconds, 1.1 * seconds}});
  }
  double iteration_s = 0.0;  // the tasks of this plan run one after the other
  for (const TaskTimes& task : measured.tasks) {
    iteration_s += 0.5 * (task.seconds[1] + task.seconds[2]);
  }
  measured.iteration_s = {10.0 * iteration_s, 0.9 * iteration_s, 1.1 * iteration_s};
  measured.response_tokens = {3, 5, 5, 32};
  measured.verifier_s = 0.25;
  return measured;
}

TEST(Observed, MeasuresEachClassOnItsTier) {
  const Job job = predicted_job(test::small_hardware());
  const ObservedFactors factors = observed_factors(job, synthetic_run(job));
  const ObservedFactor& generate = factors.of(WorkClass::kGenerate, Tier::kNode);
  EXPECT_NEAR(generate.factor, 3.0, 1e-9);
  EXPECT_NEAR(generate.spread, 0.3, 1e-9);  // 10 %
  EXPECT_EQ(generate.samples, 2);           // the first iteration does not count
  EXPECT_NEAR(factors.of(WorkClass::kInfer, Tier::kNode).factor, 0.5, 1e-9);
  EXPECT_NEAR(factors.of(WorkClass::kTrain, Tier::kNode).factor, 1.25, 1e-9);
  EXPECT_NEAR(factors.of(WorkClass::kTransfer, Tier::kRack).factor, 20.0, 1e-9);
  EXPECT_EQ(factors.of(WorkClass::kTransfer, Tier::kNode).samples, 0);
}

TEST(Observed, APredictionWithTheFactorsIsWhatTheRunTook) {
  HardwareProfile profile = test::small_hardware();
  const Job job = predicted_job(profile);
  const TraceAnalysis measured = synthetic_run(job);
  const std::string text = observed_text(job, measured, {});
  const ObservedRun run = parse_observed(text, "observed.yaml");
  EXPECT_NEAR(run.predicted_iteration_s, job.predicted.iteration_time_s, 1e-12);
  profile.observed = compound_factors(profile.observed, run.factors);
  const Evaluation again = evaluate_plan(job.plan, job.inputs, profile);
  for (const TimedTask& task : again.priced.tasks.tasks) {
    const double seconds = slowdown_of(task.name) * predicted_task_s(job, task.name);
    EXPECT_NEAR(task.time.total_s, seconds, 1e-9 * seconds) << task.name;
  }
  EXPECT_GT(std::abs(job.predicted.iteration_time_s - run.measured_iteration_s),
            run.iteration_spread_s);
  EXPECT_NEAR(again.steady.period_s, run.measured_iteration_s, 1e-6 * run.measured_iteration_s);
}

TEST(Observed, HoldsLengthsAndTheVerifier) {
  const Job job = predicted_job(test::small_hardware());
  const ObservedRun run = parse_observed(observed_text(job, synthetic_run(job), {}), "o.yaml");
  ASSERT_FALSE(run.gen_quantiles.empty());
  EXPECT_EQ(run.gen_quantiles.back(), (std::pair<double, double>{1.0, 32.0}));
  EXPECT_EQ(run.verifier_s, 0.25);
}

TEST(Observed, SaysNothingWithoutPredictions) {
  Job job = test::job_of(grpo_inputs(), two_node_plan());
  job.predicted = {};
  EXPECT_EQ(observed_text(job, synthetic_run(predicted_job(test::small_hardware())), {}), "");
}

}  // namespace
}  // namespace rpeg
