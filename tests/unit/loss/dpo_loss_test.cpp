#include "rpeg/loss/dpo_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "rpeg/base/error.h"
#include "rpeg/base/rng.h"

namespace rpeg {
namespace {

using Numbers = std::vector<double>;

struct Pairs {
  Numbers policy_chosen, policy_rejected, reference_chosen, reference_rejected;

  DpoLossInputs inputs() const {
    return {policy_chosen, policy_rejected, reference_chosen, reference_rejected};
  }
};

Pairs random_pairs(std::uint64_t seed, int count) {
  Rng rng(seed);
  Pairs pairs;
  for (int i = 0; i < count; ++i) {
    pairs.policy_chosen.push_back(-40.0 * rng.uniform());
    pairs.policy_rejected.push_back(-40.0 * rng.uniform());
    pairs.reference_chosen.push_back(pairs.policy_chosen.back() + 5.0 * rng.normal());
    pairs.reference_rejected.push_back(pairs.policy_rejected.back() + 5.0 * rng.normal());
  }
  return pairs;
}

const std::vector<DpoLossOptions> kAllOptions = {{DpoLossKind::kSigmoid, 0.1, 0.0},
                                                 {DpoLossKind::kSigmoid, 0.5, 0.2},
                                                 {DpoLossKind::kIpo, 0.1, 0.0},
                                                 {DpoLossKind::kHinge, 0.1, 0.0}};

TEST(DpoLoss, APolicyThatIsItsReferenceLosesLn2) {
  Pairs pairs = random_pairs(1, 5);
  pairs.reference_chosen = pairs.policy_chosen;
  pairs.reference_rejected = pairs.policy_rejected;
  const DpoLoss result = dpo_loss(pairs.inputs(), 5.0, {});
  EXPECT_NEAR(result.loss, std::log(2.0), 1e-15);
  EXPECT_EQ(result.margin_sum, 0.0);
  EXPECT_EQ(result.accurate_pairs, 0.0);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(result.d_chosen[i], -0.1 * 0.5 / 5.0, 1e-16);  // −β σ(0) / pairs
    EXPECT_EQ(result.d_rejected[i], -result.d_chosen[i]);
  }
}

TEST(DpoLoss, MatchesHandArithmetic) {
  // Δ = (−10 + 12) − (−20 + 19) = 3 and (−5 + 5) − (−6 + 8) = −2; β = 0.5: margins 1.5 and −1.
  const Pairs pairs{{-10.0, -5.0}, {-20.0, -6.0}, {-12.0, -5.0}, {-19.0, -8.0}};
  const auto loss = [&](DpoLossKind kind, double smoothing) {
    return dpo_loss(pairs.inputs(), 2.0, {kind, 0.5, smoothing});
  };
  const auto log_loss = [](double margin) { return std::log(1.0 + std::exp(-margin)); };
  EXPECT_NEAR(loss(DpoLossKind::kSigmoid, 0.0).loss, (log_loss(1.5) + log_loss(-1.0)) / 2.0, 1e-15);
  EXPECT_NEAR(loss(DpoLossKind::kSigmoid, 0.1).loss,
              (0.9 * (log_loss(1.5) + log_loss(-1.0)) + 0.1 * (log_loss(-1.5) + log_loss(1.0))) / 2,
              1e-15);
  EXPECT_NEAR(loss(DpoLossKind::kIpo, 0.0).loss, (4.0 + 9.0) / 2.0, 1e-15);  // 1/(2β) = 1
  const DpoLoss hinge = loss(DpoLossKind::kHinge, 0.0);
  EXPECT_NEAR(hinge.loss, (0.0 + 2.0) / 2.0, 1e-15);
  EXPECT_EQ(hinge.d_chosen, (Numbers{0.0, -0.25}));  // −β / pairs inside the margin
  EXPECT_EQ(hinge.d_rejected, (Numbers{0.0, 0.25}));
  EXPECT_NEAR(hinge.margin_sum, 0.5, 1e-15);
  EXPECT_EQ(hinge.accurate_pairs, 1.0);
  EXPECT_NEAR(hinge.chosen_reward_sum, 0.5 * (2.0 + 0.0), 1e-15);
  EXPECT_NEAR(hinge.rejected_reward_sum, 0.5 * (-1.0 + 2.0), 1e-15);
}

TEST(DpoLoss, DerivativesAreFiniteDifferences) {
  constexpr double kStep = 1e-6;
  for (const DpoLossOptions& options : kAllOptions) {
    Pairs pairs = random_pairs(2, 20);
    const DpoLoss result = dpo_loss(pairs.inputs(), 30.0, options);
    const auto numeric = [&](double& value) {
      const double kept = value;
      value = kept + kStep;
      const double above = dpo_loss(pairs.inputs(), 30.0, options).loss;
      value = kept - kStep;
      const double below = dpo_loss(pairs.inputs(), 30.0, options).loss;
      value = kept;
      return (above - below) / (2.0 * kStep);
    };
    for (std::size_t i = 0; i < 20; ++i) {
      EXPECT_NEAR(result.d_chosen[i], numeric(pairs.policy_chosen[i]), 1e-7);
      EXPECT_NEAR(result.d_rejected[i], numeric(pairs.policy_rejected[i]), 1e-7);
    }
  }
}

TEST(DpoLoss, SharesOfPartsAddUpToTheWhole) {
  const Pairs pairs = random_pairs(3, 7);
  const auto part = [&](std::size_t first, std::size_t count) {
    const auto cut = [&](const Numbers& all) { return std::span(all).subspan(first, count); };
    return DpoLossInputs{cut(pairs.policy_chosen),
                         cut(pairs.policy_rejected),
                         cut(pairs.reference_chosen),
                         cut(pairs.reference_rejected)};
  };
  for (const DpoLossOptions& options : kAllOptions) {
    const DpoLoss whole = dpo_loss(pairs.inputs(), 7.0, options);
    const DpoLoss first = dpo_loss(part(0, 3), 7.0, options);
    const DpoLoss none = dpo_loss(part(3, 0), 7.0, options);
    const DpoLoss second = dpo_loss(part(3, 4), 7.0, options);
    EXPECT_NEAR(first.loss + none.loss + second.loss, whole.loss, 1e-13);
    EXPECT_NEAR(first.margin_sum + second.margin_sum, whole.margin_sum, 1e-13);
    EXPECT_EQ(first.accurate_pairs + second.accurate_pairs, whole.accurate_pairs);
    EXPECT_EQ(second.d_chosen[0], whole.d_chosen[3]);  // bit for bit
  }
}

TEST(DpoLoss, StaysFiniteFarFromTheReference) {
  for (const double far : {-1e4, 1e4}) {
    const Pairs pairs{{far}, {0.0}, {0.0}, {0.0}};
    const DpoLoss result = dpo_loss(pairs.inputs(), 1.0, {DpoLossKind::kSigmoid, 1.0, 0.0});
    EXPECT_EQ(result.loss, far < 0.0 ? 1e4 : 0.0);
    EXPECT_EQ(result.d_chosen[0], far < 0.0 ? -1.0 : 0.0);
  }
}

TEST(DpoLoss, RefusesBrokenInputs) {
  Pairs pairs = random_pairs(4, 3);
  EXPECT_THROW((void)dpo_loss(pairs.inputs(), 2.0, {}), Error);
  EXPECT_THROW((void)dpo_loss(pairs.inputs(), 3.0, {DpoLossKind::kIpo, 0.1, 0.1}), Error);
  pairs.reference_rejected.pop_back();
  EXPECT_THROW((void)dpo_loss(pairs.inputs(), 3.0, {}), Error);
}

TEST(BestAgainstWorst, TakesTheFirstOfEqualsAndNoTies) {
  EXPECT_EQ(best_against_worst(Numbers{0.0, 1.0, 0.5, -1.0}), (SamplePair{1, 3}));
  EXPECT_EQ(best_against_worst(Numbers{1.0, 0.0, 1.0, 0.0}), (SamplePair{0, 1}));
  EXPECT_EQ(best_against_worst(Numbers{0.0, 0.0, 1.0}), (SamplePair{2, 0}));
  EXPECT_EQ(best_against_worst(Numbers{0.5, 0.5, 0.5}), std::nullopt);
  EXPECT_EQ(best_against_worst(Numbers{}), std::nullopt);
}

}  // namespace
}  // namespace rpeg
