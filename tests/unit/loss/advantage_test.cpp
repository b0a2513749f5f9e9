#include "rpeg/loss/advantage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "rpeg/base/error.h"
#include "rpeg/base/rng.h"

namespace rpeg {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using Numbers = std::vector<double>;
using Starts = std::vector<std::int64_t>;

TEST(KlEstimate, MatchesTheFormulas) {
  // x = −1 − (−1.5) = 0.5
  EXPECT_DOUBLE_EQ(kl_estimate(KlEstimator::kK1, -1.0, -1.5), 0.5);
  EXPECT_DOUBLE_EQ(kl_estimate(KlEstimator::kK2, -1.0, -1.5), 0.125);
  EXPECT_NEAR(kl_estimate(KlEstimator::kK3, -1.0, -1.5), std::exp(-0.5) + 0.5 - 1.0, 1e-15);
}

TEST(KlEstimate, K3KeepsItsDigitsNearZero) {
  // e^y − y − 1 = y²/2 + y³/6 + …
  for (const double y : {1e-9, -1e-7, 9e-6, 1.1e-5, -1.1e-5}) {
    const double expected = y * y / 2.0 + y * y * y / 6.0 + y * y * y * y / 24.0;
    EXPECT_NEAR(kl_estimate(KlEstimator::kK3, -1.0 - y, -1.0) / expected, 1.0, 1e-5) << y;
  }
  EXPECT_EQ(kl_estimate(KlEstimator::kK3, -1.0, -1.0), 0.0);
}

TEST(KlEstimate, K3IsClamped) {
  const double at_clamp = std::exp(20.0) - 21.0;
  EXPECT_DOUBLE_EQ(kl_estimate(KlEstimator::kK3, -100.0, 0.0), at_clamp);
  EXPECT_EQ(kl_estimate_derivative(KlEstimator::kK3, -100.0, 0.0), 0.0);
}

TEST(KlEstimate, DerivativesAreFiniteDifferences) {
  constexpr double kStep = 1e-6;
  for (const auto estimator : {KlEstimator::kK1, KlEstimator::kK2, KlEstimator::kK3}) {
    for (const double logprob : {-0.1, -1.0, -1.5, -4.0}) {
      const double numeric = (kl_estimate(estimator, logprob + kStep, -1.2) -
                              kl_estimate(estimator, logprob - kStep, -1.2)) /
                             (2.0 * kStep);
      EXPECT_NEAR(kl_estimate_derivative(estimator, logprob, -1.2), numeric, 1e-8);
    }
  }
}

TEST(TokenRewards, PayTheScoreAtTheLastToken) {
  const Numbers rewards = token_rewards(Starts{0, 2, 3},
                                        Numbers{1.0, -2.0},
                                        Numbers{-1.0, -2.0, -3.0},
                                        Numbers{-1.5, -2.0, -2.0},
                                        KlEstimator::kK1,
                                        0.1);
  // −0.1·(0.5, 0, −1) and the scores 1 and −2 at tokens 1 and 2.
  EXPECT_THAT(rewards, ElementsAre(DoubleEq(-0.05), DoubleEq(1.0), DoubleEq(0.1 - 2.0)));
}

TEST(TokenRewards, NeedNoReference) {
  EXPECT_THAT(
      token_rewards(Starts{0, 2}, Numbers{3.0}, Numbers{-1.0, -2.0}, {}, KlEstimator::kK1, 0.1),
      ElementsAre(0.0, 3.0));
}

TEST(Gae, MatchesHandArithmetic) {
  // γ = ½, λ = ½. Sequence 0: δ1 = 2 − 3 = −1, δ0 = 1 + ½·3 − 2 = ½, A0 = ½ + ¼·(−1) = ¼.
  // Sequence 1: δ = A = 5 − 1 = 4, untouched by its neighbour.
  const Gae gae = generalised_advantages(
      Starts{0, 2, 3}, Numbers{1.0, 2.0, 5.0}, Numbers{2.0, 3.0, 1.0}, 0.5, 0.5);
  EXPECT_THAT(gae.advantages, ElementsAre(0.25, -1.0, 4.0));
  EXPECT_THAT(gae.returns, ElementsAre(2.25, 2.0, 5.0));
}

TEST(Gae, WithLambdaOneReturnsAreDiscountedRewards) {
  // R0 = 1 + 0.9·2 + 0.81·3 whatever the values are.
  const Gae gae = generalised_advantages(
      Starts{0, 3}, Numbers{1.0, 2.0, 3.0}, Numbers{0.7, -0.2, 9.0}, 0.9, 1.0);
  EXPECT_NEAR(gae.returns[0], 1.0 + 0.9 * 2.0 + 0.81 * 3.0, 1e-14);
}

TEST(Whiten, GivesZeroMeanAndUnitVariance) {
  const Numbers values = {1.0, 2.0, 4.0, 9.0};  // mean 4, Σ(x − 4)² = 9 + 4 + 0 + 25 = 38
  const Numbers unbiased = whiten(values, moments(values), Whitening::kUnbiased);
  EXPECT_NEAR(unbiased[3], 5.0 / std::sqrt(38.0 / 3.0 + 1e-8), 1e-14);
  const Numbers biased = whiten(values, moments(values), Whitening::kBiased);
  EXPECT_NEAR(biased[0], -3.0 / std::sqrt(38.0 / 4.0 + 1e-8), 1e-14);
  EXPECT_EQ(whiten(values, moments(values), Whitening::kNone), values);
}

TEST(Whiten, PartsWithGlobalMomentsEqualTheWhole) {
  const Numbers all = {1.0, -2.0, 4.5, 9.0, 3.0};
  const Numbers left = {1.0, -2.0};
  const Numbers right = {4.5, 9.0, 3.0};
  Moments global = moments(left);
  const Moments other = moments(right);
  global = {global.count + other.count,
            global.sum + other.sum,
            global.sum_of_squares + other.sum_of_squares};
  const Numbers whole = whiten(all, moments(all), Whitening::kUnbiased);
  const Numbers part = whiten(right, global, Whitening::kUnbiased);
  for (std::size_t i = 0; i < right.size(); ++i) {
    EXPECT_DOUBLE_EQ(part[i], whole[i + 2]);
  }
}

TEST(Whiten, SingleAndConstantValuesBecomeZero) {
  EXPECT_THAT(whiten(Numbers{3.0}, moments(Numbers{3.0}), Whitening::kUnbiased), ElementsAre(0.0));
  const Numbers same = {0.1, 0.1, 0.1};
  for (const double value : whiten(same, moments(same), Whitening::kBiased)) {
    EXPECT_NEAR(value, 0.0, 1e-9);
  }
}

TEST(GroupAdvantages, MatchHandArithmetic) {
  const Numbers scores = {1.0, 2.0, 6.0};  // mean 3, Σ(r − 3)² = 4 + 1 + 9 = 14, std = √7
  const double std = std::sqrt(7.0);
  EXPECT_THAT(
      group_advantages(scores, 3, GroupAdvantage::kStd, 0.5),
      ElementsAre(
          DoubleEq(-2.0 / (std + 0.5)), DoubleEq(-1.0 / (std + 0.5)), DoubleEq(3.0 / (std + 0.5))));
  EXPECT_THAT(group_advantages(scores, 3, GroupAdvantage::kMean, 0.5),
              ElementsAre(DoubleEq(-2.0), DoubleEq(-1.0), DoubleEq(3.0)));
  // 1 − (2 + 6)/2, 2 − (1 + 6)/2, 6 − (1 + 2)/2
  EXPECT_THAT(group_advantages(scores, 3, GroupAdvantage::kRloo, 0.5),
              ElementsAre(DoubleEq(-3.0), DoubleEq(-1.5), DoubleEq(4.5)));
}

TEST(GroupAdvantages, AreExactlyZeroWhereAllRewardsAreEqual) {
  // 0.1 + 0.1 + 0.1 is not 0.3 in binary: a mean would leave a residue.
  const Numbers scores = {0.1, 0.1, 0.1, 1.0, 0.0, 0.0};
  for (const auto kind : {GroupAdvantage::kStd, GroupAdvantage::kMean, GroupAdvantage::kRloo}) {
    const Numbers result = group_advantages(scores, 3, kind, 1e-6);
    EXPECT_THAT(std::vector(result.begin(), result.begin() + 3), ElementsAre(0.0, 0.0, 0.0));
    EXPECT_GT(result[3], 0.5);
    EXPECT_THAT(group_advantages(Numbers{5.0}, 1, kind, 1e-6), ElementsAre(0.0));
  }
}

TEST(GroupAdvantages, RefuseBrokenGroups) {
  EXPECT_THROW(group_advantages(Numbers{1.0, 2.0, 3.0}, 2, GroupAdvantage::kStd, 1e-6), Error);
  EXPECT_THROW(group_advantages(Numbers{1.0}, 0, GroupAdvantage::kStd, 1e-6), Error);
}

TEST(PackedSequences, MustPartitionTheTokens) {
  const Numbers three(3, 0.0);
  for (const Starts& starts : {Starts{}, Starts{0}, Starts{0, 2}, Starts{1, 3}, Starts{0, 4, 3}}) {
    EXPECT_THROW((void)generalised_advantages(starts, three, three, 1.0, 1.0), Error);
  }
}

}  // namespace
}  // namespace rpeg
