#include "rpeg/search/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "rpeg/base/error.h"
#include "rpeg/plan/cells.h"
#include "support/planning.h"

namespace rpeg {
namespace {

SearchResult search(const WorkloadConfig& config,
                    std::int64_t evaluations,
                    int threads = 2,
                    const HardwareProfile& profile = test::small_hardware()) {
  SearchOptions options;
  options.evaluations = evaluations;
  options.threads = threads;
  return search_plan(config, profile, options);
}

/// Every plan of a vertex on a single node, any number of micro-batches.
std::vector<VertexPlan> all_vertex_plans(const Vertex& vertex, const WorkloadConfig& config) {
  std::vector<VertexPlan> plans;
  const int gpus = config.hardware.gpus_per_node;
  const Graph alone{{vertex}, {}};
  for (int first = 0; first < gpus; ++first) {
    for (int last = first; last < gpus; ++last) {
      const int count = last - first + 1;
      for (int tp = 1; tp <= count; ++tp) {
        for (int pp = 1; pp * tp <= count; ++pp) {
          if (count % (tp * pp) != 0) continue;
          for (std::int64_t m = 1; m <= 8; m *= 2) {
            const VertexPlan plan{{count / tp / pp, pp, tp}, m, {{0, 0}, {0, 0}, {first, last}}};
            if (find_violations(Plan{{}, {plan}}, alone, config).empty()) plans.push_back(plan);
          }
        }
      }
    }
  }
  return plans;
}

/// The least period of all plans of a three-vertex job, by trying them all.
double exhaustive_period(const WorkloadConfig& config, const HardwareProfile& profile) {
  const Graph graph = build_graph(config.policy, {});
  EXPECT_EQ(graph.vertices.size(), 3U);
  double best = std::numeric_limits<double>::infinity();
  for (const std::int64_t tau : config.optimizer.staleness_actor) {
    for (const auto& a : all_vertex_plans(graph.vertices[0], config)) {
      for (const auto& b : all_vertex_plans(graph.vertices[1], config)) {
        for (const auto& c : all_vertex_plans(graph.vertices[2], config)) {
          const Evaluation now = evaluate_plan({{tau, 0}, {a, b, c}}, config, profile);
          if (now.fits()) best = std::min(best, now.steady.period_s);
        }
      }
    }
  }
  return best;
}

TEST(Search, ReachesTheExhaustiveOptimumOfASmallSpace) {
  WorkloadConfig config = test::small_grpo(2);
  config.optimizer.staleness_actor = {0, 1};
  // Slow links: it pays to take the vertices apart, but not as the baselines do it.
  HardwareProfile profile = test::small_hardware();
  profile.collective[0] = {2e-3, 1e-7};
  const double optimum = exhaustive_period(config, profile);
  const SearchResult baselines = search(config, 1, 1, profile);
  EXPECT_GT(baselines.greedy.steady.period_s, 1.005 * optimum);
  EXPECT_GT(baselines.concurrent.steady.period_s, 1.005 * optimum);
  int reached = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    config.seed = seed;
    const double period = search(config, 1000, 2, profile).best.steady.period_s;
    EXPECT_GE(period, optimum * (1 - 1e-12));
    if (period <= optimum * (1 + 1e-12)) ++reached;
  }
  RecordProperty("reached", reached);
  EXPECT_GE(reached, 95) << "of 100 seeds";
}

void expect_same_on_any_threads(const WorkloadConfig& config) {
  const SearchResult one = search(config, 3000, 1);
  const std::string text = plan_file_text(make_plan_file(one.best, config), nullptr);
  for (const int threads : {2, 4}) {
    const SearchResult other = search(config, 3000, threads);
    EXPECT_EQ(plan_file_text(make_plan_file(other.best, config), nullptr), text);
    EXPECT_EQ(other.statistics.hits, one.statistics.hits);
    EXPECT_EQ(other.statistics.restarts, one.statistics.restarts);
  }
}

TEST(Search, GivesTheSamePlanOnAnyNumberOfThreads) {
  expect_same_on_any_threads(test::small_ppo(1, 2, 4));
  for (WorkloadConfig config : {test::small_ppo(1, 2, 4), test::small_grpo(4)}) {
    config.workload.gen_quantiles = {{0.5, 6.0}, {0.8, 12.0}, {1.0, 32.0}};
    config.policy.allow_ac_share = config.policy.algorithm == Algorithm::kPpo;
    config.optimizer.staleness_actor = {0, 1, 2};
    config.optimizer.staleness_critic = {0, 1};
    expect_same_on_any_threads(config);
  }
}

TEST(Search, SpendsExactlyTheEvaluationsAskedFor) {
  const WorkloadConfig config = test::small_ppo(1, 1, 4);
  for (const std::int64_t evaluations : {1, 7, 1001}) {
    const SearchStatistics statistics = search(config, evaluations).statistics;
    EXPECT_EQ(statistics.evaluations, evaluations);
    EXPECT_EQ(statistics.hits + statistics.misses, evaluations);
    EXPECT_EQ(statistics.end, SearchEnd::kBudget);
  }
}

TEST(Search, IsNeverWorseThanABaselineThatFits) {
  const WorkloadConfig config = test::small_ppo(1, 2, 4);
  const SearchResult result = search(config, 2000);
  EXPECT_LE(result.best.steady.period_s, result.greedy.steady.period_s);
  EXPECT_LE(result.best.steady.period_s, result.concurrent.steady.period_s);
  EXPECT_TRUE(result.best.fits());
}

TEST(Search, HonoursTheLimitsThatARuntimeNeeds) {
  WorkloadConfig config = test::small_ppo(1, 1, 4);
  config.optimizer.max_tp = 1;
  config.optimizer.max_pp = 1;
  config.hardware.max_gpus = 3;
  const Plan plan = search(config, 2000).best.plan;
  for (const VertexPlan& vertex : plan.vertices) {
    EXPECT_EQ(vertex.parallelism.tp, 1);
    EXPECT_EQ(vertex.parallelism.pp, 1);
  }
  EXPECT_LE(active_gpu_count(plan), 3);
  EXPECT_EQ(plan.structure, Structure{});
}

TEST(Search, EndsEarlyWhereThereIsOnePlan) {
  WorkloadConfig config = test::small_grpo(1);
  config.workload.batch_size = 1;
  config.workload.samples_per_prompt = 1;
  const SearchResult result = search(config, 20000);
  EXPECT_EQ(result.statistics.end, SearchEnd::kBound);  // one plan attains its own bound
  EXPECT_LT(result.statistics.evaluations, 100);
  EXPECT_EQ(result.best.plan, result.greedy.plan);
}

TEST(Search, SaysWhichMemoryOverflowsWhenNothingFits) {
  HardwareProfile profile = test::small_hardware();
  profile.memory_per_gpu = 1e4;
  SearchOptions options;
  options.evaluations = 500;
  try {
    search_plan(test::small_grpo(2), profile, options);
    FAIL() << "a plan was found";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInfeasible);
    EXPECT_GT(error.message().size(), 80U) << error.message();
  }
}

TEST(Search, SaysWhichTaskIsTooSlowToPredict) {
  HardwareProfile profile = test::small_hardware();
  profile.flops_per_gpu = 1.0;
  SearchOptions options;
  options.evaluations = 50;
  try {
    search_plan(test::small_grpo(2), profile, options);
    FAIL() << "a plan was found";
  } catch (const NoPlanFits& none) {
    EXPECT_THAT(none.message(), testing::HasSubstr("s in every iteration, more than the 1e+06 s"));
    EXPECT_TRUE(none.nearest().fits());
  }
}

TEST(Search, TakesAnyTime) {
  std::atomic<bool> stop{false};
  SearchOptions options;
  options.time_s = 1e15;  // more nanoseconds than a clock counts
  options.stop = &stop;
  options.progress = [&](const SearchProgress& progress) { stop = progress.evaluations > 100; };
  const auto result = search_plan(test::small_ppo(1, 2, 4), test::small_hardware(), options);
  EXPECT_NE(result.statistics.end, SearchEnd::kTime);
  EXPECT_GT(result.statistics.evaluations, 100);
}

TEST(Search, StopsOnRequestWithAPlan) {
  std::atomic<bool> stop{true};
  SearchOptions options;
  options.evaluations = 1000000000;
  options.stop = &stop;
  const WorkloadConfig config = test::small_ppo(1, 1, 2);
  const SearchResult result = search_plan(config, test::small_hardware(), options);
  EXPECT_EQ(result.statistics.end, SearchEnd::kStopped);
  EXPECT_TRUE(result.best.fits());
}

TEST(Search, KeepsToTheTimeAndDerivesEvaluations) {
  SearchOptions options;
  options.time_s = 0.5;
  const auto start = std::chrono::steady_clock::now();
  const SearchResult result =
      search_plan(test::small_ppo(1, 2, 4), test::small_hardware(), options);
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LT(took, 2.0);
  EXPECT_TRUE(result.statistics.budget_from_time);
  EXPECT_GT(result.statistics.budget, 100);
}

TEST(Search, ObjectiveCostLeavesGpusIdleWhenTheyDoNotPay) {
  WorkloadConfig config = test::small_ppo(1, 1, 4);
  config.optimizer.objective = Objective::kCost;
  const SearchResult cheap = search(config, 4000);
  config.optimizer.objective = Objective::kThroughput;
  const SearchResult fast = search(config, 4000);
  const auto price = [](const SearchResult& result) {
    return result.best.metrics.active_gpus * result.best.metrics.iteration_time_s;
  };
  EXPECT_LE(price(cheap), price(fast));
  EXPECT_GE(cheap.best.metrics.iteration_time_s, fast.best.metrics.iteration_time_s);
}

}  // namespace
}  // namespace rpeg
