#include <gtest/gtest.h>

#include "unit/search/score_walk.h"

namespace rpeg {
namespace {

TEST(Evaluator, EqualsTheFullEvaluationAfterAMillionMoves) {
  test::compare_scores(test::walk_job(Algorithm::kPpo), 800000, 11);
  test::compare_scores(test::walk_job(Algorithm::kGrpo), 200000, 12);
}

}  // namespace
}  // namespace rpeg
