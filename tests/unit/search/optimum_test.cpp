// Whether annealing reaches the optimum of spaces that are small enough to try every plan. Ten
// seeds each by default; RPEG_SEEDS=100 in the slow test.

#include <gtest/gtest.h>

#include <cstdlib>

#include "rpeg/search/search.h"
#include "small_spaces.h"

namespace rpeg {
namespace {

constexpr std::int64_t kEvaluations = 8000;

class Optimum : public testing::TestWithParam<std::size_t> {};

TEST_P(Optimum, IsReachedByAnnealing) {
  test::SmallSpace small = test::small_spaces()[GetParam()];
  SearchOptions all;
  all.exhaustive = true;
  const SearchResult truth = search_plan(small.config, small.profile, all);
  const double optimum = truth.best.steady.period_s;
  EXPECT_EQ(truth.statistics.end, SearchEnd::kExhausted);
  EXPECT_LE(truth.bound.period_s, optimum + 1e-8);
  SearchOptions anneal;
  anneal.evaluations = kEvaluations;
  const char* wanted = std::getenv("RPEG_SEEDS");
  const int seeds = wanted != nullptr ? std::atoi(wanted) : 10;
  int reached = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    small.config.seed = static_cast<std::uint64_t>(seed);
    const double period = search_plan(small.config, small.profile, anneal).best.steady.period_s;
    EXPECT_GE(period, optimum * (1 - 1e-12));
    if (period <= optimum * (1 + 1e-12)) ++reached;
  }
  std::printf(
      "%s: %.3g plans, %.3g distinct, %d tried; optimum %.9g s, bound %.9g s; reached by %d "
      "of %d seeds\n",
      small.name.c_str(),
      truth.statistics.space_plans,
      truth.statistics.distinct_plans,
      static_cast<int>(truth.statistics.evaluations),
      optimum,
      truth.bound.period_s,
      reached,
      seeds);
  EXPECT_GE(reached, (95 * seeds + 99) / 100);
}

INSTANTIATE_TEST_SUITE_P(SmallSpaces, Optimum, testing::Range<std::size_t>(0, 6));

}  // namespace
}  // namespace rpeg
