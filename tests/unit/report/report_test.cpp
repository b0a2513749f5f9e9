#include "rpeg/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rpeg/search/baseline.h"
#include "support/planning.h"

namespace rpeg {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

/// A result without a search: the baselines, the concurrent plan as the best one.
SearchResult result_of(const WorkloadConfig& config) {
  const HardwareProfile profile = test::small_hardware();
  SearchResult result;
  result.greedy = evaluate_plan(greedy_plan(config, profile), config, profile);
  result.concurrent = evaluate_plan(concurrent_plan(config, profile), config, profile);
  result.best = result.concurrent;
  result.statistics.wall_s = 312.4;
  result.statistics.evaluations = 167857;
  result.statistics.hits = 142857;
  result.statistics.misses = 25000;
  result.statistics.budget = 167857;
  return result;
}

TEST(SearchReport, HasEveryRowAndColumnOfThePublishedLayout) {
  const WorkloadConfig config = test::small_ppo(1, 4, 2);
  const std::string text = search_report(result_of(config), config, "1 GFLOP/s");
  for (const char* part : {"Results",
                           "Search statistics",
                           "wall time     312.4s",
                           "cache         hits=142857 misses=25000 (85.1%)",
                           "hardware      1 GFLOP/s",
                           "ac_share      False",
                           "tau           {Pi:0, V:0}",
                           "Per-vertex plan (base → optimal):",
                           "parallelism (dp,pp,tp)",
                           "placement (rack, nodes, gpus)",
                           "Critical cycle"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, ContainsRegex("Metric +Greedy +Conc. Heuristic +Optimized +Δ \\(vs greedy\\)"));
  for (const char* row : {"Throughput \\(tokens/s\\)", "Throughput \\(PFLOP/s\\)"}) {
    EXPECT_THAT(text, ContainsRegex(std::string(row) + "( +[0-9.e+-]+){3} +[+-][0-9.]+%"));
  }
  EXPECT_THAT(text, ContainsRegex("Makespan \\(s\\)( +[0-9.e+-]+){3}\n"));
  EXPECT_THAT(text, ContainsRegex("GPU utilization( +[0-9.]+%){3}\n"));
  EXPECT_THAT(text, ContainsRegex("Active GPUs( +8){3}\n"));
  EXPECT_THAT(text, ContainsRegex("\\* +g_pi +\\([0-9,]+\\) -> \\([0-9,]+\\)"));
}

TEST(SearchReport, MarksOnlyTheVerticesThatChanged) {
  const WorkloadConfig config = test::small_ppo(1, 4, 2);
  SearchResult result = result_of(config);
  result.best = result.greedy;
  EXPECT_THAT(search_report(result, config, ""), Not(ContainsRegex("\n\\*")));
}

TEST(SearchReport, SaysThatABaselineDoesNotFit) {
  const WorkloadConfig config = test::small_ppo(1, 4, 2);
  SearchResult result = result_of(config);
  result.greedy.priced.overflow = 0.25;
  result.greedy.priced.overflow_text = "GPU 3 needs too much";
  const std::string text = search_report(result, config, "");
  EXPECT_THAT(text, ContainsRegex("Makespan \\(s\\) +infeasible"));
  EXPECT_THAT(text, HasSubstr("Greedy does not fit: GPU 3 needs too much"));
}

TEST(SearchReport, PricesTokensWhenGpuHoursHaveAPrice) {
  WorkloadConfig config = test::small_ppo(1, 4, 2);
  EXPECT_THAT(search_report(result_of(config), config, ""), Not(HasSubstr("Cost per million")));
  config.hardware.gpu_hour_price = 2.5;
  EXPECT_THAT(search_report(result_of(config), config, ""), HasSubstr("Cost per million tokens"));
}

TEST(PlanReport, HasThePlanAndItsMetrics) {
  const WorkloadConfig config = test::small_grpo(2);
  const std::string text = plan_report(result_of(config).greedy, config, "1 GFLOP/s");
  EXPECT_THAT(text, HasSubstr("Per-vertex plan:"));
  EXPECT_THAT(text, ContainsRegex("t_pi +\\(1,1,2\\) +1 +r0"));
  EXPECT_THAT(text, ContainsRegex("Makespan \\(s\\) +[0-9]"));
}

TEST(ProgressText, ShowsElapsedSpeedTemperatureAndBest) {
  EXPECT_EQ(progress_text({2.0, 600.0, 4000, 1200000, 0.05, 24563.0}),
            "2.0/600s  4000/1200000 evaluations  2000/s  T=0.0500  best 2.4563e+04 tokens/s");
  EXPECT_THAT(progress_text({}), HasSubstr("no plan fits yet"));
}

}  // namespace
}  // namespace rpeg
