#include "search/exhaustive.h"

#include <gtest/gtest.h>

#include <atomic>

#include "rpeg/base/error.h"
#include "search/baselines.h"
#include "search/moves.h"
#include "search/plan_key.h"
#include "search/symmetry.h"
#include "small_spaces.h"
#include "support/planning.h"

namespace rpeg {
namespace {

SearchResult try_all(const test::SmallSpace& small, std::int64_t top = 1) {
  SearchOptions options;
  options.exhaustive = true;
  options.top = top;
  return search_plan(small.config, small.profile, options);
}

/// The least objective of all plans of a job on one node, by plain loops over everything.
double plain_optimum(const test::SmallSpace& small, const std::vector<Structure>& structures) {
  const WorkloadConfig& config = small.config;
  const search::Space space = search::build_space(config, {});
  search::SubPlanTable table(space, small.profile);
  double best = std::numeric_limits<double>::infinity();
  for (const Structure& structure : structures) {
    Plan plan;
    plan.structure = structure;
    const auto& kinds = search::kinds_of(space, structure);
    plan.vertices.resize(kinds.size());
    const std::function<void(std::size_t)> choose = [&](std::size_t v) {
      if (v == kinds.size()) {
        const Graph graph = build_graph(config.policy, structure);
        if (!find_violations(plan, graph, config).empty())
          return;  // more replicas than a chunk has
        const Evaluation evaluation = evaluate_plan(plan, config, small.profile);
        if (evaluation.fits()) best = std::min(best, evaluation.steady.period_s);
        return;
      }
      for (int first = 0; first < config.hardware.gpus_per_node; ++first) {
        for (int last = first; last < config.hardware.gpus_per_node; ++last) {
          const Placement block{{0, 0}, {0, 0}, {first, last}};
          for (const search::SubPlan& choice : table.of(kinds[v], block).all) {
            plan.vertices[v] = search::place(choice, block);
            choose(v + 1);
          }
        }
      }
    };
    choose(0);
  }
  return best;
}

TEST(Exhaustive, FindsWhatPlainLoopsFind) {
  for (const std::size_t i : {1U, 2U}) {
    const test::SmallSpace small = test::small_spaces()[i];
    const search::Space space = search::build_space(small.config, {});
    const SearchResult result = try_all(small);
    EXPECT_EQ(result.statistics.end, SearchEnd::kExhausted);
    EXPECT_DOUBLE_EQ(result.best.steady.period_s,
                     plain_optimum(small, search::all_structures(space)))
        << small.name;
    EXPECT_LT(result.statistics.distinct_plans, result.statistics.space_plans);
    EXPECT_LE(result.bound.period_s, result.best.steady.period_s + 1e-8);
  }
}

TEST(Exhaustive, KeepsTheBestDistinctPlans) {
  const SearchResult result = try_all(test::small_spaces()[1], 5);
  ASSERT_EQ(result.top.size(), 5U);
  EXPECT_EQ(result.top.front().plan, result.best.plan);
  for (std::size_t i = 1; i < result.top.size(); ++i) {
    EXPECT_GE(result.top[i].steady.period_s, result.top[i - 1].steady.period_s);
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NE(search::canonical_form(result.top[i].plan),
                search::canonical_form(result.top[j].plan));
    }
  }
}

TEST(Exhaustive, StoppedBeforeTheFirstPlanGivesOneMadeByHand) {
  const std::atomic<bool> stop{true};
  SearchOptions options;
  options.exhaustive = true;
  options.stop = &stop;
  const SearchResult result = search_plan(test::small_grpo(2), test::small_hardware(), options);
  EXPECT_EQ(result.statistics.end, SearchEnd::kStopped);
  EXPECT_TRUE(result.best.fits());
  EXPECT_LE(result.best.steady.period_s, result.greedy.steady.period_s);
}

TEST(Exhaustive, RefusesALargeSpaceWithItsSize) {
  try {
    try_all({"", test::small_ppo(2, 8, 8), test::small_hardware()});
    FAIL() << "tried to try all";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_NE(error.message().find("distinct plans"), std::string::npos);
  }
}

TEST(Symmetry, CountsHandMadeBlocks) {
  // Two vertices on two GPUs: [0-0] [0-1] [1-1] each, 9 pairs. Normal: both on 0; apart with the
  // first on 0; and one or both of them on 0-1, the smaller one at either end: 1 + 1 + 2 + 2 + 1.
  int normal = 0;
  for (const Range& a : {Range{0, 0}, Range{0, 1}, Range{1, 1}}) {
    for (const Range& b : {Range{0, 0}, Range{0, 1}, Range{1, 1}}) {
      normal += search::is_normal({{{0, 0}, {0, 0}, a}, {{0, 0}, {0, 0}, b}}) ? 1 : 0;
    }
  }
  EXPECT_EQ(normal, 7);
}

TEST(Symmetry, NormalFormsCostTheSame) {
  WorkloadConfig config = test::small_ppo(2, 3, 4);
  config.optimizer.staleness_actor = {0, 1};
  const HardwareProfile profile = test::small_hardware();
  const search::Space space = search::build_space(config, {});
  search::Workbench bench(space, profile);
  search::Mover mover(bench.table);
  Rng rng(41);
  Plan plan = search::greedy(bench.table, bench.evaluator);
  Plan next;
  int changed = 0;
  for (int i = 0; i < 6000; ++i) {
    if (!mover.draw(plan, static_cast<std::size_t>(rng.below(6)), rng, next)) continue;
    plan = next;
    const Plan normal = search::normal_form(plan);
    if (normal == plan) continue;
    ++changed;
    std::vector<Placement> blocks;
    for (const VertexPlan& vertex : normal.vertices) blocks.push_back(vertex.placement);
    EXPECT_TRUE(search::is_normal(blocks));
    const search::Score a = bench.evaluator.score(plan);
    const search::Score b = bench.evaluator.score(normal);
    EXPECT_EQ(a.period_s, b.period_s);
    EXPECT_DOUBLE_EQ(a.overflow, b.overflow);
    EXPECT_EQ(search::canonical_form(plan), search::canonical_form(normal));
  }
  EXPECT_GT(changed, 500);
}

}  // namespace
}  // namespace rpeg
