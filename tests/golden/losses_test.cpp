#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "rpeg/base/file.h"
#include "rpeg/loss/advantage.h"
#include "rpeg/loss/dpo_loss.h"
#include "rpeg/loss/policy_loss.h"

namespace rpeg {
namespace {

using nlohmann::json;
using Numbers = std::vector<double>;

constexpr double kTolerance = 1e-12;
/// verl and OpenRLHF divide masked sums by (count + 1e-8). Where they do, the tests do too.
constexpr double kForeignEpsilon = 1e-8;

/// tests/golden/data/losses.json: B = 4 sequences padded to T = 5, here packed.
class Recorded : public testing::Test {
 protected:
  const json golden_ =
      json::parse(read_file(std::string(RPEG_SOURCE_DIR) + "/tests/golden/data/losses.json"));
  const json& inputs_ = golden_.at("inputs");
  const std::vector<std::int64_t> starts_ = starts();

  std::vector<std::int64_t> starts() const {
    std::vector<std::int64_t> result = {0};
    for (const json& row : inputs_.at("mask")) {
      const auto mask = row.get<Numbers>();
      const auto length = static_cast<std::int64_t>(std::accumulate(mask.begin(), mask.end(), 0.0));
      result.push_back(result.back() + length);
    }
    return result;
  }

  std::int64_t length(std::size_t i) const { return starts_[i + 1] - starts_[i]; }
  double tokens() const { return static_cast<double>(starts_.back()); }

  /// The response tokens of a (B, T) array.
  Numbers packed(const json& array) const {
    Numbers result;
    for (std::size_t i = 0; i < array.size(); ++i) {
      const auto row = array[i].get<Numbers>();
      result.insert(result.end(), row.begin(), row.begin() + length(i));
    }
    return result;
  }
  Numbers input(const char* name) const { return packed(inputs_.at(name)); }
};

void expect_near(const Numbers& actual, const Numbers& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], kTolerance) << "entry " << i;
  }
}

TEST_F(Recorded, KlEstimates) {
  const Numbers logprob = input("new_logprob");
  const Numbers ref = input("ref_logprob");
  for (const auto& [name, estimator] : {std::pair("k1", KlEstimator::kK1),
                                        std::pair("k2", KlEstimator::kK2),
                                        std::pair("k3", KlEstimator::kK3)}) {
    SCOPED_TRACE(name);
    Numbers kl;
    for (std::size_t t = 0; t < logprob.size(); ++t) {
      kl.push_back(kl_estimate(estimator, logprob[t], ref[t]));
    }
    expect_near(kl, packed(golden_.at("kl").at(name)));
  }
}

TEST_F(Recorded, TokenRewards) {
  const auto scores = inputs_.at("scores").get<Numbers>();
  const Numbers rewards = token_rewards(
      starts_, scores, input("old_logprob"), input("ref_logprob"), KlEstimator::kK1, 0.05);
  expect_near(rewards, packed(golden_.at("token_rewards_kl0.05_k1")));
}

struct GaeCase {
  const char* name;
  double gamma;
  double lambda;
};
class RecordedGae : public Recorded, public testing::WithParamInterface<GaeCase> {};

TEST_P(RecordedGae, AdvantagesReturnsAndWhitening) {
  const json& expected = golden_.at(GetParam().name);
  const Numbers rewards = packed(golden_.at("token_rewards_kl0.05_k1"));
  const Gae gae = generalised_advantages(
      starts_, rewards, input("values"), GetParam().gamma, GetParam().lambda);
  expect_near(gae.advantages, packed(expected.at("adv_raw")));
  expect_near(gae.returns, packed(expected.at("returns")));
  // verl takes masked means, so it divides both sums by (N + 1e-8), then the variance by (N − 1)/N.
  const Moments m = moments(gae.advantages);
  const double ours = m.sum / m.count;
  const double verl = m.sum / (m.count + kForeignEpsilon);
  const double about_verl = m.sum_of_squares - 2.0 * verl * m.sum + m.count * verl * verl;
  const double verl_variance =
      about_verl / (m.count + kForeignEpsilon) * m.count / (m.count - 1.0) + kForeignEpsilon;
  const double biased_variance = m.sum_of_squares / m.count - ours * ours;
  const double unbiased_variance = biased_variance * m.count / (m.count - 1.0);
  Numbers unbiased = whiten(gae.advantages, m, Whitening::kUnbiased);
  for (double& x : unbiased) {
    x = (x * std::sqrt(unbiased_variance + kForeignEpsilon) + ours - verl) /
        std::sqrt(verl_variance);
  }
  expect_near(unbiased, packed(expected.at("adv_whitened_unbiased_verl_trl")));
  // OpenRLHF divides by sqrt(max(variance, 1e-8)) where RPEG divides by sqrt(variance + 1e-8).
  Numbers biased = whiten(gae.advantages, m, Whitening::kBiased);
  for (double& x : biased) {
    x *= std::sqrt((biased_variance + kForeignEpsilon) / biased_variance);
  }
  expect_near(biased, packed(expected.at("adv_whitened_biased_openrlhf")));
}

INSTANTIATE_TEST_SUITE_P(,
                         RecordedGae,
                         testing::Values(GaeCase{"gae_gamma1.0_lam1.0", 1.0, 1.0},
                                         GaeCase{"gae_gamma1.0_lam0.95", 1.0, 0.95},
                                         GaeCase{"gae_gamma0.99_lam0.9", 0.99, 0.9}),
                         [](const auto& suite) {
                           std::string name = suite.param.name;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST_F(Recorded, GroupAdvantages) {
  struct Case {
    const char* name;
    GroupAdvantage kind;
    double std_eps;
  };
  const auto scores = inputs_.at("scores").get<Numbers>();
  for (const Case& c : {Case{"verl_std_eps1e6", GroupAdvantage::kStd, 1e-6},
                        Case{"verl_no_std_drgrpo", GroupAdvantage::kMean, 0.0},
                        Case{"openrlhf_group_norm_eps1e9", GroupAdvantage::kStd, 1e-9},
                        Case{"trl_group_eps1e4", GroupAdvantage::kStd, 1e-4},
                        Case{"rloo", GroupAdvantage::kRloo, 0.0}}) {
    SCOPED_TRACE(c.name);
    expect_near(group_advantages(scores, 2, c.kind, c.std_eps),
                golden_.at("grpo_adv").at(c.name).get<Numbers>());
  }
}

/// The recorded policy losses, all with the advantages `policy_loss_adv` (GRPO with std_eps 1e-6).
class RecordedPolicyLoss : public Recorded {
 protected:
  const Numbers logprob_ = input("new_logprob");
  const Numbers old_logprob_ = input("old_logprob");
  const Numbers ref_logprob_ = input("ref_logprob");
  const Numbers advantages_ = packed(golden_.at("policy_loss_adv"));
  const LossNormaliser normaliser_{tokens(), 4.0, 5.0};

  PolicyLoss loss(const PolicyLossOptions& options) const {
    const PolicyLossInputs in{starts_, logprob_, old_logprob_, advantages_, ref_logprob_, {}};
    return policy_loss(in, normaliser_, options);
  }

  /// kSeqMeanTokenMean with each sequence divided by (length + 1e-8) instead of its length.
  double seq_mean_with_epsilon(PolicyLossOptions options) const {
    options.aggregation = Aggregation::kSeqMeanTokenMean;
    double sum = 0.0;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto first = static_cast<std::size_t>(starts_[i]);
      const auto count = static_cast<std::size_t>(length(i));
      const auto part = [&](const Numbers& all) { return std::span(all).subspan(first, count); };
      const std::vector<std::int64_t> alone = {0, length(i)};
      const PolicyLossInputs in{
          alone, part(logprob_), part(old_logprob_), part(advantages_), {}, {}};
      const auto n = static_cast<double>(count);
      sum += policy_loss(in, {n, 1.0, 5.0}, options).loss * n / (n + kForeignEpsilon);
    }
    return sum / 4.0;
  }
};

struct ClipCase {
  const char* name;
  double clip_low;
  double clip_high;
  double dual_clip;
};

TEST_F(RecordedPolicyLoss, Verl) {
  for (const ClipCase& c : {ClipCase{"ppo_0p2_dualclip3", 0.2, 0.2, 3.0},
                            ClipCase{"clip_higher_0p2_0p28_dualclip3", 0.2, 0.28, 3.0},
                            ClipCase{"dualclip1p2", 0.2, 0.2, 1.2}}) {
    SCOPED_TRACE(c.name);
    PolicyLossOptions options{c.clip_low, c.clip_high, c.dual_clip};
    const auto expected = [&](const char* aggregation, const char* value) {
      const std::string key = std::string(c.name) + "/" + aggregation;
      return golden_.at("policy_loss").at(key).at(value).get<double>();
    };
    const PolicyLoss token_mean = loss(options);
    EXPECT_NEAR(token_mean.loss, expected("token-mean", "loss"), kTolerance);
    const double count = tokens() + kForeignEpsilon;
    EXPECT_NEAR(
        token_mean.clipped_tokens / count, expected("token-mean", "actor/pg_clipfrac"), kTolerance);
    EXPECT_NEAR(token_mean.dual_clipped_tokens / count,
                expected("token-mean", "actor/pg_clipfrac_lower"),
                kTolerance);
    EXPECT_NEAR(token_mean.kl_old_sum / count, expected("token-mean", "actor/ppo_kl"), kTolerance);
    EXPECT_NEAR(
        seq_mean_with_epsilon(options), expected("seq-mean-token-mean", "loss"), kTolerance);
    options.aggregation = Aggregation::kSeqMeanTokenSumNorm;
    EXPECT_NEAR(loss(options).loss, expected("seq-mean-token-sum-norm", "loss"), kTolerance);
  }
}

TEST_F(RecordedPolicyLoss, OpenRlhfTokenLevel) {
  for (const ClipCase& c : {ClipCase{"openrlhf_token", 0.2, 0.2, 0.0},
                            ClipCase{"openrlhf_token_cliphigher", 0.2, 0.28, 0.0},
                            ClipCase{"openrlhf_dual3", 0.2, 0.2, 3.0}}) {
    SCOPED_TRACE(c.name);
    const json& expected = golden_.at("policy_loss").at(c.name);
    const PolicyLoss result = loss({c.clip_low, c.clip_high, c.dual_clip});
    EXPECT_NEAR(result.loss, expected.at("loss").get<double>(), kTolerance);
    EXPECT_NEAR(
        result.clipped_tokens / tokens(), expected.at("clip_ratio").get<double>(), kTolerance);
    EXPECT_NEAR(result.kl_old_sum / tokens(), expected.at("ppo_kl").get<double>(), kTolerance);
  }
  EXPECT_NEAR(seq_mean_with_epsilon({}),
              golden_.at("policy_loss").at("openrlhf_sample").at("loss").get<double>(),
              kTolerance);
}

TEST_F(RecordedPolicyLoss, OpenRlhfSequenceRatio) {
  PolicyLossOptions options;
  options.ratio = RatioLevel::kSequence;
  const json& expected = golden_.at("policy_loss").at("openrlhf_gspo");
  EXPECT_NEAR(seq_mean_with_epsilon(options), expected.at("loss").get<double>(), kTolerance);
  EXPECT_EQ(loss(options).clipped_tokens, expected.at("clip_ratio").get<double>());
}

TEST_F(RecordedPolicyLoss, TrlGrpo) {
  struct Case {
    const char* name;
    double clip_high;
    double kl_coef;
  };
  for (const Case& c : {Case{"eps0p2", 0.2, 0.0},
                        Case{"eps0p2_0p28", 0.28, 0.0},
                        Case{"eps0p2_beta0p04", 0.2, 0.04}}) {
    SCOPED_TRACE(c.name);
    const json& expected = golden_.at("trl_grpo_loss").at(c.name);
    PolicyLossOptions options;
    options.clip_high = c.clip_high;
    options.kl_coef = c.kl_coef;
    EXPECT_NEAR(
        loss(options).loss, expected.at("bnpo_or_dapo_single_process").get<double>(), kTolerance);
    options.aggregation = Aggregation::kSeqMeanTokenMean;
    EXPECT_NEAR(loss(options).loss, expected.at("grpo").get<double>(), kTolerance);
    options.aggregation = Aggregation::kSeqMeanTokenSumNorm;
    EXPECT_NEAR(loss(options).loss, expected.at("dr_grpo_L5").get<double>(), kTolerance);
  }
}

TEST_F(Recorded, ValueLoss) {
  const Numbers values = input("new_values");
  const Numbers old_values = input("values");
  const Numbers returns = packed(golden_.at("value_loss_returns"));
  const json& expected = golden_.at("value_loss");
  const LossNormaliser normaliser{tokens(), 4.0, 5.0};
  const auto loss = [&](double clip) {
    return value_loss(
        values, old_values, returns, normaliser, clip, Aggregation::kTokenMean, starts_);
  };
  const double count = tokens() + kForeignEpsilon;  // of verl's clip fraction, not of its loss
  EXPECT_NEAR(loss(0.2).loss, expected.at("clip0p2").get<double>(), kTolerance);
  EXPECT_NEAR(
      loss(0.2).clipped_tokens / count, expected.at("clipfrac0p2").get<double>(), kTolerance);
  EXPECT_NEAR(loss(0.5).loss, expected.at("clip0p5").get<double>(), kTolerance);
  EXPECT_NEAR(
      loss(0.5).clipped_tokens / count, expected.at("clipfrac0p5").get<double>(), kTolerance);
  EXPECT_NEAR(loss(0.0).loss, expected.at("unclipped").get<double>(), kTolerance);
}

TEST_F(Recorded, DpoLoss) {
  struct Case {
    const char* name;
    DpoLossOptions options;
  };
  const json& pairs = golden_.at("dpo_inputs");
  const auto policy_chosen = pairs.at("policy_chosen").get<Numbers>();
  const auto policy_rejected = pairs.at("policy_rejected").get<Numbers>();
  const auto reference_chosen = pairs.at("ref_chosen").get<Numbers>();
  const auto reference_rejected = pairs.at("ref_rejected").get<Numbers>();
  const auto loss = [&](const DpoLossOptions& options) {
    return dpo_loss(
        {policy_chosen, policy_rejected, reference_chosen, reference_rejected}, 3.0, options);
  };
  for (const Case& c : {Case{"openrlhf_cdpo_beta0.1_ls0.0", {DpoLossKind::kSigmoid, 0.1, 0.0}},
                        Case{"openrlhf_cdpo_beta0.1_ls0.1", {DpoLossKind::kSigmoid, 0.1, 0.1}},
                        Case{"openrlhf_cdpo_beta0.5_ls0.0", {DpoLossKind::kSigmoid, 0.5, 0.0}},
                        Case{"openrlhf_cdpo_beta0.5_ls0.1", {DpoLossKind::kSigmoid, 0.5, 0.1}},
                        Case{"openrlhf_ipo_sum_beta0.1", {DpoLossKind::kIpo, 0.1, 0.0}},
                        Case{"openrlhf_ipo_sum_beta0.5", {DpoLossKind::kIpo, 0.5, 0.0}},
                        Case{"trl_hinge_beta0.1", {DpoLossKind::kHinge, 0.1, 0.0}},
                        Case{"trl_hinge_beta0.5", {DpoLossKind::kHinge, 0.5, 0.0}}}) {
    EXPECT_NEAR(loss(c.options).loss, golden_.at("dpo").at(c.name).get<double>(), kTolerance)
        << c.name;
  }
  for (const auto& [name, beta] : {std::pair("rewards_beta0.1", 0.1), {"rewards_beta0.5", 0.5}}) {
    const auto chosen = golden_.at("dpo").at(name).at("chosen").get<Numbers>();
    const auto rejected = golden_.at("dpo").at(name).at("rejected").get<Numbers>();
    const double sum = std::accumulate(chosen.begin(), chosen.end(), 0.0);
    const double rejected_sum = std::accumulate(rejected.begin(), rejected.end(), 0.0);
    const DpoLoss result = loss({DpoLossKind::kSigmoid, beta, 0.0});
    EXPECT_NEAR(result.chosen_reward_sum, sum, kTolerance);
    EXPECT_NEAR(result.rejected_reward_sum, rejected_sum, kTolerance);
    EXPECT_NEAR(result.margin_sum, sum - rejected_sum, kTolerance);
    EXPECT_EQ(result.accurate_pairs, 2.0);  // of Δ = 2.5, −1.5, 0.5
  }
}

}  // namespace
}  // namespace rpeg
