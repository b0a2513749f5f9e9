#include "rpeg/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

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

TEST(SearchReport, PrintsTheStructureAndItsCuts) {
  WorkloadConfig config = test::small_ppo(1, 4, 2);
  config.workload.gen_quantiles = {{0.5, 8}, {0.75, 16}, {1.0, 32}};
  SearchResult result = result_of(config);
  EXPECT_THAT(search_report(result, config, ""), HasSubstr("cuts          []"));
  result.best.plan.structure.cuts = 0b10;
  EXPECT_THAT(search_report(result, config, ""), HasSubstr("cuts          [0.75]"));
}

TEST(SearchReport, ComparesAJointTrainingWithThatOfTheActor) {
  WorkloadConfig config = test::small_ppo(1, 4, 2);
  config.policy.allow_ac_share = true;
  SearchResult result = result_of(config);
  Plan shared = result.greedy.plan;
  shared.structure.ac_share = true;
  shared.vertices.pop_back();
  const VertexPlan& actor = result.greedy.plan.vertices.back();
  shared.vertices.back() = actor;
  result.best = evaluate_plan(shared, config, test::small_hardware());
  const std::string text = search_report(result, config, "");
  EXPECT_THAT(text, HasSubstr("ac_share      True"));
  EXPECT_THAT(text, ContainsRegex("\n\\* +t_piV +\\([0-9,]+\\) +[0-9]+ +r0"));
}

TEST(SearchReport, PrintsBothBoundsWithTheirGaps) {
  const WorkloadConfig config = test::small_ppo(1, 4, 2);
  SearchResult result = result_of(config);
  EXPECT_THAT(search_report(result, config, ""), Not(HasSubstr("any plan")));  // none computed
  result.bound = {result.best.steady.period_s / 1.25, "GPU time of all vertices over 8 GPUs"};
  const std::string text = search_report(result, config, "");
  EXPECT_THAT(text, ContainsRegex("this plan +[0-9.e-]+ s, gap [0-9.]+%"));
  EXPECT_THAT(text,
              ContainsRegex("any plan +[0-9.e-]+ s, gap 25.0%: GPU time of all vertices over 8"));
  EXPECT_THAT(text, Not(HasSubstr("least cost")));
  WorkloadConfig cheap = config;
  cheap.optimizer.objective = Objective::kCost;
  EXPECT_THAT(search_report(result, cheap, ""), HasSubstr("least cost"));
}

/// A text without its line breaks.
std::string in_one_line(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
  return line;
}

TEST(SearchReport, SaysWhyTheSearchEnded) {
  const WorkloadConfig config = test::small_ppo(1, 4, 2);
  SearchResult result = result_of(config);
  const auto text_for = [&](SearchEnd end) {
    result.statistics.end = end;
    return in_one_line(search_report(result, config, ""));
  };
  EXPECT_THAT(text_for(SearchEnd::kBound), HasSubstr("attains the bound of the space"));
  EXPECT_THAT(text_for(SearchEnd::kStalled), HasSubstr("no chain improved"));
  EXPECT_THAT(text_for(SearchEnd::kExhausted), HasSubstr("every plan was tried"));
  EXPECT_THAT(text_for(SearchEnd::kStopped), HasSubstr("stopped on request"));
}

TEST(SearchReport, ListsTheBestPlansWithTheirDifferences) {
  const WorkloadConfig config = test::small_ppo(1, 4, 2);
  SearchResult result = result_of(config);
  result.top = {result.best};
  EXPECT_THAT(search_report(result, config, ""), Not(HasSubstr("The best")));
  Plan second = result.best.plan;
  second.structure.tau_critic = 1;
  result.top.push_back(evaluate_plan(second, config, test::small_hardware()));
  const std::string text = search_report(result, config, "");
  EXPECT_THAT(text, HasSubstr("The best 2 plans"));
  EXPECT_THAT(text, ContainsRegex("2 +[0-9.e-]+ +[+-][0-9.]+% +8 +tau critic 0 -> 1"));
  second.vertices.back().micro_batches *= 2;
  result.top.push_back(evaluate_plan(second, config, test::small_hardware()));
  EXPECT_THAT(
      search_report(result, config, ""),
      ContainsRegex("3 +[0-9.e-]+ +[+-][0-9.]+% +8 +tau critic 0 -> 1\n +t_pi micro_batches"));
}

TEST(ExplainReport, AddsUpTheTimeOfEveryVertex) {
  const WorkloadConfig config = test::small_ppo(1, 4, 2);
  const HardwareProfile profile = test::small_hardware();
  const Evaluation evaluation = result_of(config).concurrent;
  const std::string text = explain_report(evaluation, config, profile, nullptr);
  for (const char* vertex : {"g_pi", "i_R", "i_V", "i_ref", "t_V", "t_pi"}) {
    EXPECT_THAT(text,
                ContainsRegex("\n  " + std::string(vertex) +
                              " +[0-9.e-]+ +[0-9.]+%( +[0-9.]+%){3} +[0-9.e-]+ +[0-9.]+%\n"));
    EXPECT_THAT(text, ContainsRegex("\n  " + std::string(vertex) + " +[0-9.]+ .?B "));
  }
  EXPECT_THAT(text, ContainsRegex("together .* in 1 iteration, so .* per"));
  EXPECT_THAT(text, HasSubstr("(concurrent)"));
  EXPECT_THAT(text, Not(HasSubstr("Against")));
}

TEST(ExplainReport, ComparesWithAnotherPlan) {
  const WorkloadConfig config = test::small_ppo(1, 4, 2);
  const HardwareProfile profile = test::small_hardware();
  const Evaluation evaluation = result_of(config).concurrent;
  NamedPlan other{"mine.yaml", evaluation.plan};
  EXPECT_THAT(explain_report(evaluation, config, profile, &other),
              HasSubstr("It is the same plan."));
  other.plan.structure.tau_actor = 1;
  const std::string text = explain_report(evaluation, config, profile, &other);
  EXPECT_THAT(text, HasSubstr("Against mine.yaml"));
  EXPECT_THAT(text, ContainsRegex("-[0-9.e-]+ +-[0-9.]+% +tau actor 0 -> 1"));
}

TEST(ExplainReport, TellsNoTimeOfAPlanThatDoesNotFit) {
  const WorkloadConfig config = test::small_ppo(1, 4, 2);
  HardwareProfile profile = test::small_hardware();
  const Plan plan = result_of(config).greedy.plan;
  NamedPlan other{"packed.yaml", plan};
  other.plan.vertices.back().parallelism = {1, 1, 1};
  other.plan.vertices.back().placement = {{0, 0}, {0, 0}, {0, 0}};
  // Room for the plan, but not for a whole training on one GPU.
  profile.memory_per_gpu = 1.01 * evaluate_plan(plan, config, profile).metrics.peak_bytes;
  const Evaluation evaluation = evaluate_plan(plan, config, profile);
  ASSERT_TRUE(evaluation.fits());
  EXPECT_THAT(explain_report(evaluation, config, profile, &other),
              ContainsRegex("\n +- +- +t_pi block .* does not fit\n"));
}

TEST(ExplainReport, NamesTheGpuTheBytesAndTheSmallestChangeOfAMisfit) {
  const WorkloadConfig config = test::small_ppo(1, 4, 2);
  HardwareProfile profile = test::small_hardware();
  const Plan plan = result_of(config).concurrent.plan;
  profile.memory_per_gpu *= 0.999 * evaluate_plan(plan, config, profile).metrics.peak_bytes /
                            evaluate_plan(plan, config, profile).priced.limit_bytes;
  const Evaluation evaluation = evaluate_plan(plan, config, profile);
  ASSERT_FALSE(evaluation.fits());
  const std::string text = explain_report(evaluation, config, profile, nullptr);
  EXPECT_THAT(text, HasSubstr("Why it does not fit"));
  EXPECT_THAT(text, HasSubstr("GPU"));
  EXPECT_THAT(text, HasSubstr("The smallest change that fits: "));
  profile.memory_per_gpu = 1e3;
  EXPECT_THAT(explain_report(evaluate_plan(plan, config, profile), config, profile, nullptr),
              ContainsRegex("No change of a single decision makes it fit"));
}

PlanMetrics metrics_of(double iteration_time_s, double tokens_per_s) {
  PlanMetrics metrics;
  metrics.iteration_time_s = iteration_time_s;
  metrics.tokens_per_s = tokens_per_s;
  return metrics;
}

TEST(SweepReport, HasOneRowPerSizeWithEfficiencyAgainstTheSmallest) {
  WorkloadConfig config = test::small_ppo(1, 4, 2);
  std::vector<SweepRow> rows(3);
  rows[0].gpus = 8;
  rows[1].gpus = 16;
  rows[1].metrics = metrics_of(2.0, 100.0);
  rows[1].metrics->active_gpus = 16;
  rows[2].gpus = 32;
  rows[2].metrics = metrics_of(1.25, 160.0);
  rows[2].metrics->active_gpus = 24;
  rows[2].metrics->cost_per_million_tokens = 7.5;
  rows[2].bound_s = 1.0;
  const std::string text = sweep_report(rows, config);
  EXPECT_THAT(text, HasSubstr("no plan fits"));
  EXPECT_THAT(text, ContainsRegex("16 +2 +1.0000e\\+02 +100.0% +16\n"));
  // 160 / 32 against 100 / 16: 5 of 6.25. 1.25 over 1.
  EXPECT_THAT(text, ContainsRegex("32 +1.25 +1.6000e\\+02 +80.0% +24 +25.0%\n"));
  EXPECT_THAT(text, Not(HasSubstr("cost")));
  config.hardware.gpu_hour_price = 1.0;
  EXPECT_THAT(sweep_report(rows, config), HasSubstr("7.5\n"));
  EXPECT_EQ(sweep_csv(rows),
            "gpus,iteration_time_s,tokens_per_s,effective_tokens_per_s,efficiency,active_gpus,"
            "bound_s,cost_per_million_tokens\n"
            "8,,,,,,,\n16,2,100,0,1,16,,\n32,1.25,160,0,0.8,24,1,7.5\n");
}

TEST(ProgressText, ShowsTheGapToTheBound) {
  SearchProgress progress;
  progress.tokens_per_s = 1.0;
  progress.best_period_s = 1.5;
  progress.bound_s = 1.2;
  EXPECT_THAT(progress_text(progress), testing::EndsWith("tokens/s  gap 25.0%"));
}

TEST(ProgressText, ShowsElapsedSpeedTemperatureAndBest) {
  EXPECT_EQ(progress_text({2.0, 600.0, 4000, 1200000, 0.05, 24563.0, 1.0, 0.0}),
            "2.0/600s  4000/1200000 evaluations  2000/s  T=0.0500  best 2.4563e+04 tokens/s");
  EXPECT_THAT(progress_text({}), HasSubstr("no plan fits yet"));
}

}  // namespace
}  // namespace rpeg
