#include "cost/lengths.h"

#include <gtest/gtest.h>

#include <cmath>

#include "unit/cost/example.h"

namespace rpeg {
namespace {

TEST(Lengths, HaveTheMomentsOfTheirPieces) {
  const WorkloadSpec workload = example_config().workload;
  // Uniform pieces: 0.5 · 64 + 0.35 · 192 + 0.15 · 384.
  EXPECT_NEAR(expected_length(workload), 32.0 + 67.2 + 57.6, 1e-12);
  // E[ℓ²] of a uniform piece is (b³ − a³)/(3(b − a)).
  const auto second = [](double a, double b) { return (b * b * b - a * a * a) / (3.0 * (b - a)); };
  EXPECT_NEAR(expected_squared_length(workload),
              0.5 * second(0, 128) + 0.35 * second(128, 256) + 0.15 * second(256, 512),
              1e-9);
}

TEST(Lengths, AreTheGenerationLengthWithoutQuantiles) {
  WorkloadSpec workload = example_config().workload;
  workload.gen_quantiles.clear();
  EXPECT_EQ(expected_length(workload), 512.0);
  EXPECT_EQ(expected_squared_length(workload), 512.0 * 512.0);
  EXPECT_EQ(expected_max_length(workload, 1), 512.0);
  EXPECT_EQ(expected_max_length(workload, 100), 512.0);
}

TEST(ExpectedMaxLength, IsTheUniformFormulaOnOnePiece) {
  WorkloadSpec workload;
  workload.generation_length = 90;
  workload.gen_quantiles = {{1.0, 90}};
  for (const std::int64_t n : {1, 2, 8, 1000}) {
    EXPECT_NEAR(expected_max_length(workload, n),
                90.0 * static_cast<double>(n) / static_cast<double>(n + 1),
                1e-10);
  }
}

TEST(ExpectedMaxLength, LiesBetweenMeanAndLongestAndGrows) {
  const WorkloadSpec workload = example_config().workload;
  EXPECT_NEAR(expected_max_length(workload, 1), expected_length(workload), 1e-12);
  double previous = 0.0;
  for (std::int64_t n = 1; n <= 4096; n *= 2) {
    const double longest = expected_max_length(workload, n);
    EXPECT_GT(longest, previous);
    EXPECT_LT(longest, 512.0);
    previous = longest;
  }
}

TEST(LengthPieces, StartWhereAsked) {
  const auto pieces = length_pieces(example_config().workload, 192.0);
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0].t0, 192.0);
  EXPECT_DOUBLE_EQ(pieces[0].g0, 0.675);  // half way from 0.5 to 0.85
  EXPECT_EQ(pieces[1].t1, 512.0);
}

TEST(AllEndedTokens, AgreesWithASum) {
  const LengthPiece piece{10.0, 30.0, 0.4, 0.9};
  double sum = 0.0;
  constexpr int kSteps = 200000;
  for (int i = 0; i < kSteps; ++i) {
    sum += std::pow(piece.at(10.0 + 20.0 * (i + 0.5) / kSteps), 7.0) * 20.0 / kSteps;
  }
  EXPECT_NEAR(all_ended_tokens(piece, 7.0), sum, 1e-9);
  EXPECT_NEAR(all_ended_tokens({0.0, 4.0, 0.5, 0.5}, 3.0), 4.0 * 0.125, 1e-15);
}

}  // namespace
}  // namespace rpeg
