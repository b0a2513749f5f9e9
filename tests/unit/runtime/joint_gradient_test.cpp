// The joint loss of a trunk that actor and critic share, in double, against finite differences.

#include <gtest/gtest.h>

#include "rpeg/loss/policy_loss.h"
#include "rpeg/model/stage.h"
#include "support/finite_difference.h"
#include "support/tiny_model.h"

namespace rpeg {
namespace {

constexpr double kTemperature = 0.8;
constexpr double kValueCoef = 0.5;

/// Responses of tiny_batch: tokens 2 … 4 of the first sequence and 7 … 9 of the third (the second
/// is a prompt alone); the value of a token is that of the state before it.
const std::vector<std::size_t> kTokens{2, 3, 4, 7, 8, 9};
const std::vector<std::int64_t> kStarts{0, 3, 6};
constexpr LossNormaliser kCounts{.tokens = 9.0, .sequences = 3.0, .max_length = 4.0};

/// One forward pass, and the backward pass when there is a gradient to fill.
double joint_loss(const TinyModel<double>& tiny,
                  const std::vector<double>& weights,
                  std::span<double> gradient) {
  const Model<double> model = tiny.with_weights(weights);
  const PackedBatch batch = tiny_batch();
  Activations<double> activations;
  const auto hidden = stage_forward<double>(model, batch, nullptr, Recompute::kNone, activations);
  std::vector<double> scratch;
  std::vector<double> values;
  TokenScores<double> scores;
  head_scores(model, batch, hidden, kTemperature, scratch, scores);
  head_values(model, hidden, values);
  std::vector<double> logprob;
  std::vector<double> entropy;
  std::vector<double> value;
  for (const std::size_t t : kTokens) {
    logprob.push_back(scores.logprob[t]);
    entropy.push_back(scores.entropy[t]);
    value.push_back(values[t - 1]);
  }
  const std::vector<double> old_logprob{-2.0, -2.5, -2.2, -3.0, -2.4, -1.9};
  const std::vector<double> advantages{0.7, -1.1, 0.4, 0.9, -0.3, 0.2};
  const std::vector<double> old_values{0.3, 0.1, -0.2, 0.4, 0.0, 0.6};
  const std::vector<double> returns{1.0, 0.2, -0.5, 0.3, 0.8, -0.1};
  PolicyLossOptions options;
  options.clip_low = 1e3;  // no clipping: finite differences need a smooth loss
  options.clip_high = 1e3;
  options.entropy_coef = 0.1;
  const PolicyLoss policy =
      policy_loss({kStarts, logprob, old_logprob, advantages, {}, entropy}, kCounts, options);
  const ValueLoss critic =
      value_loss(value, old_values, returns, kCounts, 0.0, Aggregation::kTokenMean, kStarts);
  if (!gradient.empty()) {
    std::vector<double> d_logprob(scores.logprob.size());
    std::vector<double> d_entropy(scores.logprob.size());
    std::vector<double> d_values(values.size());
    for (std::size_t r = 0; r < kTokens.size(); ++r) {
      d_logprob[kTokens[r]] = policy.d_logprob[r];
      d_entropy[kTokens[r]] = policy.d_entropy[r];
      d_values[kTokens[r] - 1] = kValueCoef * critic.d_values[r];
    }
    std::vector<double> d_hidden(hidden.size());
    head_scores_backward<double>(
        model, batch, hidden, kTemperature, d_logprob, d_entropy, scratch, d_hidden, gradient);
    head_values_backward<double>(model, hidden, d_values, d_hidden, gradient);
    stage_backward<double>(model, batch, d_hidden, Recompute::kNone, activations, gradient);
    sum_shared_gradients(model, gradient);
  }
  return policy.loss + kValueCoef * critic.loss;
}

TEST(JointLoss, GradientOfBothHeadsOnOneTrunk) {
  for (const bool tied : {false, true}) {
    const TinyModel<double> tiny(Head::kBoth, tied);
    std::vector<double> gradient(tiny.weights.size());
    joint_loss(tiny, tiny.weights, gradient);
    expect_gradient(
        tiny.weights,
        gradient,
        [&](const std::vector<double>& weights) { return joint_loss(tiny, weights, {}); },
        7,
        1e-7);
  }
}

}  // namespace
}  // namespace rpeg
