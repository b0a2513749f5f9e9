// What the optimizer writes reads back as it was, and files and flags that somebody has changed are
// refused or evaluate to finite numbers. By default a few hundred; RPEG_FUZZ=10000 in the slow
// test.

#include <gtest/gtest.h>

#include <cmath>

#include "rpeg/base/error.h"
#include "rpeg/search/baseline.h"
#include "rpeg/search/search.h"
#include "support/fuzz.h"
#include "support/planning.h"
#include "support/random_config.h"

namespace rpeg {
namespace {

/// Every number that a report prints is finite, and on every GPU the busy times and the waits add
/// up to the iteration.
void expect_consistent(const Evaluation& evaluation) {
  const double period_s = evaluation.steady.period_s;
  EXPECT_TRUE(std::isfinite(period_s) && period_s > 0.0);
  EXPECT_TRUE(std::isfinite(evaluation.priced.peak_bytes));
  EXPECT_TRUE(std::isfinite(evaluation.metrics.flop_per_s));
  EXPECT_TRUE(std::isfinite(evaluation.metrics.effective_tokens_per_s));
  EXPECT_LE(evaluation.metrics.gpu_utilization, 1.0 + 1e-6);
  for (const TimedTask& task : evaluation.priced.tasks.tasks) {
    EXPECT_TRUE(std::isfinite(task.time.total_s) && task.time.total_s >= 0.0) << task.name;
  }
  if (!too_long_text(evaluation).empty()) return;
  const TaskGraph& tasks = evaluation.priced.tasks;
  const std::vector<double> idle = idle_before(tasks, evaluation.steady);
  double sum = 0.0;
  double gpus = 0.0;
  for (const double atom : tasks.atom_gpus) gpus += atom;
  for (std::size_t id = 0; id < tasks.tasks.size(); ++id) {
    double mine = 0.0;
    for (const std::int32_t atom : tasks.tasks[id].atoms) {
      mine += tasks.atom_gpus[static_cast<std::size_t>(atom)];
    }
    EXPECT_GE(idle[id], 0.0);
    sum += mine * (tasks.tasks[id].time.total_s + idle[id]);
  }
  EXPECT_NEAR(sum, gpus * period_s, 1e-6 * gpus * period_s + 1e-6);
}

TEST(FuzzFiles, EveryPlanOfASearchReadsBackWithItsTime) {
  Rng rng(91);
  const HardwareProfile h100 = load_hardware_profile("builtin:h100-sxm");
  int plans = 0;
  const int count = test::fuzz_count() / 5;
  for (int i = 0; i < count; ++i) {
    WorkloadConfig config = random_workload_config(rng);
    config.optimizer.chains = 2;
    SCOPED_TRACE("configuration " + std::to_string(i));
    SearchOptions options;
    options.evaluations = 80;
    options.threads = 1;
    options.top = 4;
    SearchResult result;
    try {
      result = search_plan(config, h100, options);
    } catch (const NoPlanFits& none) {
      expect_consistent(none.nearest());
      continue;
    }
    for (std::size_t k = 0; k < result.top.size(); ++k) {
      const Evaluation& found = result.top[k];
      ++plans;
      expect_consistent(found);
      if (k > 0) {
        const Evaluation& before = result.top[k - 1];
        EXPECT_NE(before.plan, found.plan);
        EXPECT_LE(plan_objective(before, config), plan_objective(found, config) + 1e-9);
      }
      const PlanFile written = make_plan_file(found, config);
      const PlanFile read = parse_plan_file(plan_file_text(written, nullptr), "plan.yaml");
      EXPECT_EQ(read, written);
      EXPECT_EQ(evaluate_plan(read.plan, read.inputs, h100).steady.period_s,
                written.predicted.iteration_time_s);
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(plans, count / 5);
}

TEST(FuzzFiles, MutatedPlansAreRefusedOrEvaluate) {
  Rng rng(92);
  const HardwareProfile h100 = load_hardware_profile("builtin:h100-sxm");
  std::vector<std::string> texts;
  while (texts.size() < 20) {
    const WorkloadConfig config = random_workload_config(rng);
    try {
      const Evaluation greedy = evaluate_plan(greedy_plan(config, h100), config, h100);
      texts.push_back(plan_file_text(make_plan_file(greedy, config), nullptr));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInfeasible) << error.message();
    }
  }
  int evaluated = 0;
  const int count = test::fuzz_count();
  for (int i = 0; i < count; ++i) {
    const std::string text = test::mutated(texts[static_cast<std::size_t>(i) % texts.size()], rng);
    SCOPED_TRACE(text);
    try {
      const PlanFile file = parse_plan_file(text, "plan.yaml");
      expect_consistent(evaluate_plan(file.plan, file.inputs, h100));
      ++evaluated;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.message();
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(evaluated, count / 20);
}

TEST(FuzzFiles, MutatedHardwareIsRefusedOrEvaluates) {
  Rng rng(93);
  const WorkloadConfig config = test::small_ppo(1, 2, 4);
  const HardwareProfile h100 = load_hardware_profile("builtin:h100-sxm");
  const Plan plan = concurrent_plan(config, h100);
  const std::string base = hardware_profile_text(h100, {});
  int evaluated = 0;
  const int count = test::fuzz_count();
  for (int i = 0; i < count; ++i) {
    const std::string text = test::mutated(base, rng);
    SCOPED_TRACE(text);
    try {
      const HardwareProfile profile = parse_hardware_profile(text, "hw.yaml");
      expect_consistent(evaluate_plan(plan, config, profile));
      ++evaluated;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.message();
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(evaluated, count / 20);
}

/// Pins of any text, and plans of any other job to start from.
TEST(FuzzFiles, MutatedPinsAndForeignStartsAreRefusedOrKept) {
  Rng rng(94);
  const WorkloadConfig config = test::small_ppo(1, 2, 4);
  const HardwareProfile hardware = test::small_hardware();
  const std::vector<std::string> kPins = {
      "t_pi=m2", "t_pi=2,1,4", "t_pi=r0 n[0-1] g[0-3]", "t_pi=2,1,4/m2/r0 n[0-1] g[0-3]"};
  int kept = 0;
  const int count = test::fuzz_count();
  for (int i = 0; i < count; ++i) {
    const bool foreign = i % 3 == 0;
    std::string text = kPins[static_cast<std::size_t>(i) % kPins.size()];
    if (i % 3 == 1) text = test::mutated(text, rng);
    if (i % 3 == 2) text = "t_pi=m" + std::to_string(1 + rng.below(16));
    SCOPED_TRACE(text);
    SearchOptions options;
    options.evaluations = 40;
    options.threads = 1;
    const WorkloadConfig other = foreign ? random_workload_config(rng) : config;
    try {
      options.start = greedy_plan(other, hardware);
      options.pins = {parse_pin(text)};
      const Evaluation best = search_plan(config, hardware, options).best;
      const VertexPlan& mine = best.plan.vertices.back();
      const Pin& pin = options.pins.front();
      if (pin.vertex == "t_pi") {
        EXPECT_EQ(pin.parallelism.value_or(mine.parallelism), mine.parallelism);
        EXPECT_EQ(pin.micro_batches.value_or(mine.micro_batches), mine.micro_batches);
        EXPECT_EQ(pin.placement.value_or(mine.placement), mine.placement);
      }
      expect_consistent(best);
      ++kept;
    } catch (const Error& error) {
      EXPECT_TRUE(error.kind() == ErrorKind::kUsage || error.kind() == ErrorKind::kInfeasible)
          << error.message();
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(kept, count / 20);
}

}  // namespace
}  // namespace rpeg
