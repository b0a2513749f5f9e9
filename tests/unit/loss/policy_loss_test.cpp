#include "rpeg/loss/policy_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "rpeg/base/error.h"
#include "rpeg/base/rng.h"

namespace rpeg {
namespace {

using Numbers = std::vector<double>;
using Starts = std::vector<std::int64_t>;

/// A mini-batch of its own arrays.
struct Batch {
  Starts starts;
  Numbers logprob, old_logprob, advantages, ref_logprob, entropy;
  Numbers behaviour_logprob = {};  // empty: not decoupled

  PolicyLossInputs inputs() const {
    return {starts, logprob, old_logprob, advantages, ref_logprob, entropy, behaviour_logprob};
  }
  LossNormaliser normaliser() const {
    return {static_cast<double>(logprob.size()), static_cast<double>(starts.size() - 1), 8.0};
  }
};

Batch random_batch(std::uint64_t seed) {
  Rng rng(seed);
  Batch batch{{0}, {}, {}, {}, {}, {}};
  for (const std::int64_t length : {3, 1, 7, 4, 2}) {
    batch.starts.push_back(batch.starts.back() + length);
    for (std::int64_t t = 0; t < length; ++t) {
      batch.logprob.push_back(-3.0 * rng.uniform());
      batch.old_logprob.push_back(batch.logprob.back() + 0.8 * (rng.uniform() - 0.5));
      batch.ref_logprob.push_back(batch.logprob.back() + rng.uniform() - 0.5);
      batch.advantages.push_back(2.0 * rng.normal());
      batch.entropy.push_back(2.0 * rng.uniform());
    }
  }
  return batch;
}

/// The same batch sampled by a policy that is some updates older than old_logprob's.
Batch decoupled_batch(std::uint64_t seed) {
  Rng rng(seed + 1000);
  Batch batch = random_batch(seed);
  for (const double logprob : batch.old_logprob) {
    batch.behaviour_logprob.push_back(logprob + 0.6 * (rng.uniform() - 0.5));
  }
  return batch;
}

/// Sequences [first, last) of a batch.
Batch part_of(const Batch& batch, std::size_t first, std::size_t last) {
  const auto begin = static_cast<std::ptrdiff_t>(batch.starts[first]);
  const auto end = static_cast<std::ptrdiff_t>(batch.starts[last]);
  const auto cut = [=](const Numbers& all) {
    return Numbers(all.begin() + begin, all.begin() + end);
  };
  Batch part{{},
             cut(batch.logprob),
             cut(batch.old_logprob),
             cut(batch.advantages),
             cut(batch.ref_logprob),
             cut(batch.entropy)};
  if (!batch.behaviour_logprob.empty()) {
    part.behaviour_logprob = cut(batch.behaviour_logprob);
  }
  for (std::size_t i = first; i <= last; ++i) {
    part.starts.push_back(batch.starts[i] - begin);
  }
  return part;
}

/// All settings that change the loss or its derivatives.
std::vector<PolicyLossOptions> all_options() {
  std::vector<PolicyLossOptions> result;
  for (const auto aggregation : {Aggregation::kTokenMean,
                                 Aggregation::kSeqMeanTokenMean,
                                 Aggregation::kSeqMeanTokenSumNorm}) {
    for (const auto ratio : {RatioLevel::kToken, RatioLevel::kSequence}) {
      for (const double dual_clip : {0.0, 1.1}) {
        for (const auto estimator : {KlEstimator::kK1, KlEstimator::kK2, KlEstimator::kK3}) {
          result.push_back({0.1, 0.15, dual_clip, ratio, aggregation, 0.3, estimator, 0.02});
        }
      }
    }
  }
  return result;
}

TEST(PolicyLoss, MatchesHandArithmetic) {
  // ρ = (2, ½, 1), A = (1, 1, −2), ε = 0.2. −Aρ = (−2, −½, 2); clipped: (−1.2, −0.8, 2).
  const Batch batch{{0, 2, 3}, {-1.0, -2.0, -3.0}, {}, {1.0, 1.0, -2.0}, {}, {}};
  Batch b = batch;
  b.old_logprob = {-1.0 - std::log(2.0), -2.0 + std::log(2.0), -3.0};
  const PolicyLoss token_mean = policy_loss(b.inputs(), {3.0, 2.0, 4.0}, {});
  EXPECT_NEAR(token_mean.loss, (-1.2 - 0.5 + 2.0) / 3.0, 1e-15);
  EXPECT_EQ(token_mean.clipped_tokens, 1.0);
  EXPECT_NEAR(token_mean.ratio_max, 2.0, 1e-14);
  EXPECT_NEAR(token_mean.kl_old_sum, 0.0, 1e-14);  // −ln 2 + ln 2
  EXPECT_EQ(token_mean.d_logprob[0], 0.0);
  EXPECT_NEAR(token_mean.d_logprob[1], -0.5 / 3.0, 1e-15);
  EXPECT_NEAR(token_mean.d_logprob[2], 2.0 / 3.0, 1e-15);
  PolicyLossOptions options;
  options.aggregation = Aggregation::kSeqMeanTokenMean;
  EXPECT_NEAR(policy_loss(b.inputs(), {3.0, 2.0, 4.0}, options).loss,
              (-1.7 / 2.0 + 2.0 / 1.0) / 2.0,
              1e-15);
  options.aggregation = Aggregation::kSeqMeanTokenSumNorm;
  EXPECT_NEAR(policy_loss(b.inputs(), {3.0, 2.0, 4.0}, options).loss,
              (-1.7 / 4.0 + 2.0 / 4.0) / 2.0,
              1e-15);
}

TEST(PolicyLoss, DualClipBoundsTheLossOfBadTokens) {
  // A = −1, ρ = e: loss e without, c = 1.5 with the bound; the token no longer has a gradient.
  Batch batch{{0, 1}, {0.0}, {-1.0}, {-1.0}, {}, {}};
  EXPECT_NEAR(policy_loss(batch.inputs(), {1.0, 1.0, 1.0}, {}).loss, std::exp(1.0), 1e-15);
  const PolicyLoss bounded = policy_loss(batch.inputs(), {1.0, 1.0, 1.0}, {0.2, 0.2, 1.5});
  EXPECT_EQ(bounded.loss, 1.5);
  EXPECT_EQ(bounded.d_logprob[0], 0.0);
  EXPECT_EQ(bounded.dual_clipped_tokens, 1.0);
}

TEST(PolicyLoss, SequenceRatioIsTheGeometricMean) {
  // Log-ratios 0.1 and 0.3: both tokens have ρ = e^0.2 > 1.2, which is clipped for A > 0.
  const Batch batch{{0, 2}, {-1.0, -1.0}, {-1.1, -1.3}, {1.0, -1.0}, {}, {}};
  PolicyLossOptions options;
  options.ratio = RatioLevel::kSequence;
  const PolicyLoss result = policy_loss(batch.inputs(), {2.0, 1.0, 2.0}, options);
  EXPECT_NEAR(result.loss, (-1.2 + std::exp(0.2)) / 2.0, 1e-15);
  EXPECT_EQ(result.clipped_tokens, 1.0);
}

TEST(PolicyLoss, OnPolicyRatiosAreOne) {
  Batch batch = random_batch(1);
  batch.old_logprob = batch.logprob;
  const PolicyLoss result = policy_loss(batch.inputs(), batch.normaliser(), {});
  EXPECT_EQ(result.ratio_max, 1.0);
  EXPECT_EQ(result.clipped_tokens, 0.0);
  EXPECT_EQ(result.kl_old_sum, 0.0);
}

TEST(PolicyLoss, ExtremeRatiosAreClamped) {
  const Batch batch{{0, 2}, {0.0, -900.0}, {-900.0, 0.0}, {-1.0, 1.0}, {}, {}};
  const PolicyLoss result = policy_loss(batch.inputs(), {2.0, 1.0, 2.0}, {});
  EXPECT_NEAR(result.loss, (std::exp(20.0) - std::exp(-20.0)) / 2.0, 1e-6);
  EXPECT_EQ(result.d_logprob, (Numbers{0.0, 0.0}));
}

TEST(PolicyLoss, DecouplingWeighsTheClippedLoss) {
  // ρ = (2, ½, 1) against π_prox, A = (1, 1, −2): clipped losses (−1.2, −0.5, 2). π_prox made these
  // tokens (3, ½, 2) times as likely as the policy that sampled them. KL and entropy have no
  // weight.
  const double ln2 = std::log(2.0);
  Batch batch{{0, 2, 3},
              {-1.0, -2.0, -3.0},
              {-1.0 - ln2, -2.0 + ln2, -3.0},
              {1.0, 1.0, -2.0},
              {-1.0, -2.0, -4.0},
              {0.5, 0.25, 0.75}};
  batch.behaviour_logprob = {-1.0 - ln2 - std::log(3.0), -2.0 + 2.0 * ln2, -3.0 - ln2};
  PolicyLossOptions options;
  options.kl_coef = 0.1;
  options.kl_estimator = KlEstimator::kK1;
  options.entropy_coef = 0.2;
  const PolicyLoss result = policy_loss(batch.inputs(), {3.0, 2.0, 4.0}, options);
  EXPECT_NEAR(result.loss, (-3.6 - 0.25 + 4.0 + 0.1 * 1.0 - 0.2 * 1.5) / 3.0, 1e-14);
  EXPECT_NEAR(result.d_logprob[0], 0.1 / 3.0, 1e-15);
  EXPECT_NEAR(result.d_logprob[1], (-0.5 * 0.5 + 0.1) / 3.0, 1e-15);
  EXPECT_NEAR(result.d_logprob[2], (2.0 * 2.0 + 0.1) / 3.0, 1e-15);
  EXPECT_NEAR(result.behaviour_weight_sum, 3.0 + 0.5 + 2.0, 1e-14);
}

TEST(PolicyLoss, DecoupledSequenceRatioWeighsByTheGeometricMean) {
  // ρ = e^0.2 for both tokens, as in SequenceRatioIsTheGeometricMean; weight e^((0.5 + 0.1)/2).
  Batch batch{{0, 2}, {-1.0, -1.0}, {-1.1, -1.3}, {1.0, -1.0}, {}, {}};
  batch.behaviour_logprob = {-1.6, -1.4};
  PolicyLossOptions options;
  options.ratio = RatioLevel::kSequence;
  EXPECT_NEAR(policy_loss(batch.inputs(), {2.0, 1.0, 2.0}, options).loss,
              std::exp(0.3) * (-1.2 + std::exp(0.2)) / 2.0,
              1e-15);
}

TEST(PolicyLoss, DecouplingFromItselfChangesNothing) {
  Batch batch = random_batch(2);
  const PolicyLoss coupled = policy_loss(batch.inputs(), batch.normaliser(), {});
  batch.behaviour_logprob = batch.old_logprob;
  const PolicyLoss decoupled = policy_loss(batch.inputs(), batch.normaliser(), {});
  EXPECT_EQ(decoupled.loss, coupled.loss);
  EXPECT_EQ(decoupled.d_logprob, coupled.d_logprob);
  EXPECT_EQ(coupled.behaviour_weight_sum, static_cast<double>(batch.logprob.size()));
}

TEST(PolicyLoss, BehaviourWeightsAreClamped) {
  Batch batch{{0, 2}, {0.0, 0.0}, {0.0, 0.0}, {-1.0, 1.0}, {}, {}};
  batch.behaviour_logprob = {-900.0, 900.0};
  EXPECT_NEAR(policy_loss(batch.inputs(), {2.0, 1.0, 2.0}, {}).loss,
              (std::exp(20.0) - std::exp(-20.0)) / 2.0,
              1e-6);
}

class PolicyLossDerivatives : public testing::TestWithParam<bool> {};

TEST_P(PolicyLossDerivatives, AreFiniteDifferences) {
  constexpr double kStep = 1e-6;
  for (const PolicyLossOptions& options : all_options()) {
    Batch batch = GetParam() ? decoupled_batch(2) : random_batch(2);
    const LossNormaliser normaliser = batch.normaliser();
    const PolicyLoss result = policy_loss(batch.inputs(), normaliser, options);
    ASSERT_GT(result.clipped_tokens, 0.0);
    ASSERT_EQ(result.dual_clipped_tokens > 0.0, options.dual_clip > 0.0);
    const auto numeric = [&](double& value) {
      const double kept = value;
      value = kept + kStep;
      const double above = policy_loss(batch.inputs(), normaliser, options).loss;
      value = kept - kStep;
      const double below = policy_loss(batch.inputs(), normaliser, options).loss;
      value = kept;
      return (above - below) / (2.0 * kStep);
    };
    for (std::size_t t = 0; t < batch.logprob.size(); ++t) {
      EXPECT_NEAR(result.d_logprob[t], numeric(batch.logprob[t]), 1e-8) << "token " << t;
      EXPECT_NEAR(result.d_entropy[t], numeric(batch.entropy[t]), 1e-8) << "token " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, PolicyLossDerivatives, testing::Bool(), [](const auto& suite) {
  return suite.param ? "Decoupled" : "Coupled";
});

TEST(PolicyLoss, SharesOfPartsAddUpToTheWhole) {
  const Batch batch = decoupled_batch(3);
  for (const PolicyLossOptions& options : all_options()) {
    const PolicyLoss whole = policy_loss(batch.inputs(), batch.normaliser(), options);
    for (const auto& cuts : {std::vector<std::size_t>{0, 2, 5}, {0, 1, 1, 3, 4, 5}}) {
      double loss = 0.0;
      double clipped = 0.0;
      double kl_ref = 0.0;
      Numbers d_logprob;
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        const Batch part = part_of(batch, cuts[i], cuts[i + 1]);
        const PolicyLoss share = policy_loss(part.inputs(), batch.normaliser(), options);
        loss += share.loss;
        clipped += share.clipped_tokens;
        kl_ref += share.kl_ref_sum;
        d_logprob.insert(d_logprob.end(), share.d_logprob.begin(), share.d_logprob.end());
      }
      EXPECT_NEAR(loss, whole.loss, 1e-15);
      EXPECT_EQ(clipped, whole.clipped_tokens);
      EXPECT_NEAR(kl_ref, whole.kl_ref_sum, 1e-14);
      EXPECT_EQ(d_logprob, whole.d_logprob);  // bit for bit
    }
  }
}

TEST(PolicyLoss, WithoutReferenceAndEntropyThereAreNoSuchTerms) {
  Batch batch = random_batch(4);
  PolicyLossOptions options;
  const double plain = policy_loss(batch.inputs(), batch.normaliser(), options).loss;
  options.kl_coef = 0.5;
  options.entropy_coef = 0.5;
  batch.ref_logprob.clear();
  batch.entropy.clear();
  const PolicyLoss result = policy_loss(batch.inputs(), batch.normaliser(), options);
  EXPECT_EQ(result.loss, plain);
  EXPECT_EQ(result.kl_ref_sum, 0.0);
  EXPECT_TRUE(result.d_entropy.empty());
}

TEST(PolicyLoss, RefusesBrokenInputs) {
  Batch batch = random_batch(5);
  EXPECT_THROW((void)policy_loss(batch.inputs(), {}, {}), Error);
  batch.behaviour_logprob = {0.0};
  EXPECT_THROW((void)policy_loss(batch.inputs(), batch.normaliser(), {}), Error);
  batch.behaviour_logprob.clear();
  EXPECT_NO_THROW((void)policy_loss(batch.inputs(), batch.normaliser(), {}));
  batch.advantages.pop_back();
  EXPECT_THROW((void)policy_loss(batch.inputs(), batch.normaliser(), {}), Error);
}

TEST(ValueLoss, MatchesHandArithmetic) {
  // V = (1, 0.5), V_old = (0, 0.4), R = (1, 1), clip 0.2. Token 0: max(0², (0.2 − 1)²) = 0.64,
  // clipped; token 1: 0.5² on both branches.
  const Numbers values = {1.0, 0.5};
  const Numbers old_values = {0.0, 0.4};
  const Numbers returns = {1.0, 1.0};
  const auto loss = [&](double clip) {
    return value_loss(
        values, old_values, returns, {2.0, 1.0, 0.0}, clip, Aggregation::kTokenMean, {});
  };
  EXPECT_NEAR(loss(0.2).loss, 0.5 * (0.64 + 0.25) / 2.0, 1e-15);
  EXPECT_EQ(loss(0.2).clipped_tokens, 1.0);
  EXPECT_EQ(loss(0.2).d_values, (Numbers{0.0, -0.25}));
  EXPECT_NEAR(loss(0.0).loss, 0.5 * 0.25 / 2.0, 1e-15);
}

TEST(ValueLoss, IsAggregatedLikeThePolicyLoss) {
  // Errors (1, 2 | 3), unclipped: ½(1, 4, 9).
  const Numbers values = {1.0, 2.0, 3.0};
  const Numbers zeros(3);
  const Starts starts = {0, 2, 3};
  const LossNormaliser normaliser{3.0, 2.0, 4.0};
  const auto loss = [&](Aggregation aggregation) {
    return value_loss(values, zeros, zeros, normaliser, 0.0, aggregation, starts);
  };
  EXPECT_NEAR(loss(Aggregation::kTokenMean).loss, 7.0 / 3.0, 1e-15);
  EXPECT_NEAR(loss(Aggregation::kSeqMeanTokenMean).loss, (2.5 / 2.0 + 4.5) / 2.0, 1e-15);
  EXPECT_EQ(loss(Aggregation::kSeqMeanTokenMean).d_values, (Numbers{0.25, 0.5, 1.5}));
  EXPECT_NEAR(loss(Aggregation::kSeqMeanTokenSumNorm).loss, 7.0 / (2.0 * 4.0), 1e-15);
  EXPECT_THROW(
      (void)value_loss(values, zeros, zeros, normaliser, 0.0, Aggregation::kSeqMeanTokenMean, {}),
      Error);
}

TEST(ValueLoss, DerivativesAreFiniteDifferences) {
  constexpr double kStep = 1e-6;
  Rng rng(6);
  Numbers values, old_values, returns;
  for (int t = 0; t < 40; ++t) {
    values.push_back(rng.normal());
    old_values.push_back(values.back() + 0.4 * rng.normal());
    returns.push_back(rng.normal());
  }
  const LossNormaliser normaliser{40.0, 3.0, 30.0};
  const Starts starts = {0, 3, 33, 40};
  for (const Aggregation aggregation : {Aggregation::kTokenMean,
                                        Aggregation::kSeqMeanTokenMean,
                                        Aggregation::kSeqMeanTokenSumNorm}) {
    for (const double clip : {0.0, 0.2}) {
      const auto loss = [&](const Numbers& at) {
        return value_loss(at, old_values, returns, normaliser, clip, aggregation, starts);
      };
      const ValueLoss result = loss(values);
      EXPECT_EQ(result.clipped_tokens > 0.0, clip > 0.0);
      for (std::size_t t = 0; t < values.size(); ++t) {
        Numbers above = values;
        Numbers below = values;
        above[t] += kStep;
        below[t] -= kStep;
        EXPECT_NEAR(
            result.d_values[t], (loss(above).loss - loss(below).loss) / (2.0 * kStep), 1e-8);
      }
    }
  }
}

TEST(ValueLoss, SharesOfPartsAddUpToTheWhole) {
  const Numbers values = {1.0, 0.5, -1.0};
  const Numbers old_values = {0.0, 0.4, 0.0};
  const Numbers returns = {1.0, 1.0, 2.0};
  const LossNormaliser normaliser{3.0, 1.0, 0.0};
  const auto share = [&](std::size_t first, std::size_t count) {
    return value_loss(std::span(values).subspan(first, count),
                      std::span(old_values).subspan(first, count),
                      std::span(returns).subspan(first, count),
                      normaliser,
                      0.2,
                      Aggregation::kTokenMean,
                      {})
        .loss;
  };
  EXPECT_NEAR(share(0, 1) + share(1, 2), share(0, 3), 1e-15);
}

}  // namespace
}  // namespace rpeg
