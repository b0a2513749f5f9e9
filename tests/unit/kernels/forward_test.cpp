// Forward kernels against arithmetic on paper.

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "rpeg/base/rng.h"
#include "rpeg/kernels/linear.h"
#include "rpeg/kernels/rmsnorm.h"
#include "rpeg/kernels/rope.h"
#include "rpeg/kernels/sampling.h"
#include "rpeg/kernels/silu_gate.h"
#include "support/whole_scores.h"

namespace rpeg::cpu {
namespace {

using Values = std::vector<double>;

TEST(Linear, MultipliesByTheTransposedWeights) {
  const Values x = {1.0, 2.0, 3.0, 4.0};
  const Values w = {5.0, 6.0, 7.0, 8.0, 9.0, 10.0};
  Values y(6);
  linear_forward({2, 3, 2}, x.data(), w.data(), y.data());
  // Row (1, 2): 5 + 12, 7 + 16, 9 + 20; row (3, 4): 15 + 24, 21 + 32, 27 + 40.
  EXPECT_EQ(y, (Values{17, 23, 29, 39, 53, 67}));
  linear_forward_add({2, 3, 2}, x.data(), w.data(), y.data());
  EXPECT_EQ(y, (Values{34, 46, 58, 78, 106, 134}));
}

TEST(RmsNorm, DividesByTheRootMeanSquare) {
  const Values x = {3.0, 4.0};
  const Values w = {2.0, 10.0};
  Values y(2);
  Values inv_rms(1);
  // mean square (9 + 16) / 2 = 12.5; with eps 12.5 the root is 5.
  rmsnorm_forward({1, 2, 12.5}, x.data(), w.data(), y.data(), inv_rms.data());
  EXPECT_DOUBLE_EQ(inv_rms[0], 0.2);
  EXPECT_DOUBLE_EQ(y[0], 3.0 / 5.0 * 2.0);
  EXPECT_DOUBLE_EQ(y[1], 4.0 / 5.0 * 10.0);
}

TEST(Rope, RotatesHalvesByThePositionsAngle) {
  // d = 4, theta = 16: pair i turns by position * 16^(-i/2), that is 1 and 1/4.
  Values cosine(3 * 2);
  Values sine(3 * 2);
  rope_table(rope_frequencies(16.0, 4), 3, cosine.data(), sine.data());
  Values x = {1.0, 1.0, 0.0, 0.0};
  const std::vector<std::int32_t> positions = {2};
  rope_forward({1, 1, 4, 4}, positions, cosine.data(), sine.data(), x.data());
  EXPECT_DOUBLE_EQ(x[0], std::cos(2.0));
  EXPECT_DOUBLE_EQ(x[1], std::cos(0.5));
  EXPECT_DOUBLE_EQ(x[2], std::sin(2.0));
  EXPECT_DOUBLE_EQ(x[3], std::sin(0.5));
}

TEST(SiluGate, IsZeroAtZeroAndLinearFarAbove) {
  const Values x = {0.0, 100.0, 3.0, 0.5};
  Values y(2);
  silu_gate_forward(1, 2, x.data(), y.data());
  EXPECT_DOUBLE_EQ(y[0], 0.0);
  EXPECT_DOUBLE_EQ(y[1], 100.0 * 0.5);
}

TEST(SiluGate, StaysFiniteFarBelowZeroInFloat) {
  const std::vector<float> x = {-200.0F, 1.0F};
  std::vector<float> y(1);
  silu_gate_forward(1, 1, x.data(), y.data());
  EXPECT_NEAR(y[0], 0.0F, 1e-30F);
}

TEST(TokenScores, OfEqualLogitsAreUniform) {
  const std::vector<std::int32_t> targets = {2};
  const WholeScores scores({1, 4, 0.5}, targets, Values(4, 1000.0));
  EXPECT_DOUBLE_EQ(scores.logprob[0], -std::log(4.0));
  EXPECT_DOUBLE_EQ(scores.entropy[0], std::log(4.0));
}

TEST(TokenScores, DivideByTheTemperature) {
  // Odds of 3 : 1 at temperature 2 need logits 2 log 3 and 0.
  const std::vector<std::int32_t> targets = {0};
  const WholeScores scores({1, 2, 2.0}, targets, {2.0 * std::numbers::ln2 * std::log2(3.0), 0.0});
  EXPECT_NEAR(scores.logprob[0], std::log(0.75), 1e-15);
  EXPECT_NEAR(scores.entropy[0], -0.75 * std::log(0.75) - 0.25 * std::log(0.25), 1e-15);
}

TEST(Gumbel, IsTheDoubleLogarithmOfEveryWord) {
  const std::vector<std::uint32_t> words = {0, 1, 0x80000000U, 0xFFFFFFFEU, 0xFFFFFFFFU};
  Values noise(words.size());
  gumbel_from_words(words, noise.data());
  for (std::size_t i = 0; i < words.size(); ++i) {
    EXPECT_NEAR(noise[i], -std::log(-std::log(uniform_open(words[i]))), 1e-8) << words[i];
  }
}

TEST(RelativeLogits, AreDifferencesToTheMaximumGiven) {
  Values logits = {1.0, 3.0, 2.0, 0.0, 1.0, 0.5};
  const Values maxima = {3.0, 2.0};  // of the second row elsewhere in the vocabulary
  Values sums(2);
  relative_logits(2, 3, 0.5, maxima.data(), logits.data(), sums.data());
  EXPECT_EQ(logits, (Values{-4.0, 0.0, -2.0, -4.0, -2.0, -3.0}));
  EXPECT_DOUBLE_EQ(sums[0], std::exp(-4.0) + 1.0 + std::exp(-2.0));
  EXPECT_DOUBLE_EQ(sums[1], std::exp(-4.0) + std::exp(-2.0) + std::exp(-3.0));
}

}  // namespace
}  // namespace rpeg::cpu
