#include "rpeg/loss/policy_loss.h"

#include <algorithm>
#include <cmath>

#include "loss/packed.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

void check_inputs(const PolicyLossInputs& in) {
  const std::size_t tokens = in.logprob.size();
  check_packed(in.starts, tokens);
  check(in.old_logprob.size() == tokens && in.advantages.size() == tokens,
        "policy_loss: old_logprob, advantages and logprob differ in length");
  check(in.ref_logprob.empty() || in.ref_logprob.size() == tokens,
        "policy_loss: ref_logprob and logprob differ in length");
  check(in.entropy.empty() || in.entropy.size() == tokens,
        "policy_loss: entropy and logprob differ in length");
}

/// What one token of a sequence of `length` tokens contributes to the loss per unit of its own.
double token_weight(Aggregation aggregation, const LossNormaliser& normaliser, std::size_t length) {
  double divisor = 0.0;
  switch (aggregation) {
    case Aggregation::kTokenMean:
      divisor = normaliser.tokens;
      break;
    case Aggregation::kSeqMeanTokenMean:
      divisor = normaliser.sequences * static_cast<double>(length);
      break;
    case Aggregation::kSeqMeanTokenSumNorm:
      divisor = normaliser.sequences * normaliser.max_length;
      break;
  }
  check(divisor > 0.0, "policy_loss: the counts of the global mini-batch must be positive");
  return 1.0 / divisor;
}

/// Clipped loss of one token and its derivative by log ρ.
struct ClippedLoss {
  double loss = 0.0;
  double derivative = 0.0;
  bool clipped = false;
  bool dual_clipped = false;
};

ClippedLoss clipped_loss(double ratio, double advantage, const PolicyLossOptions& options) {
  const double plain = -advantage * ratio;
  const double clipped =
      -advantage * std::clamp(ratio, 1.0 - options.clip_low, 1.0 + options.clip_high);
  // Where the clipped branch is the larger, ρ is outside the clip range and the derivative is 0.
  ClippedLoss result{plain, plain, false, false};
  if (clipped > plain) {
    result = {clipped, 0.0, true, false};
  }
  const double bound = -advantage * options.dual_clip;
  if (options.dual_clip > 0.0 && advantage < 0.0 && bound < result.loss) {
    result.loss = bound;
    result.derivative = 0.0;
    result.dual_clipped = true;
  }
  return result;
}

/// Mean of the log-ratios of a sequence, which takes the place of each token's own (GSPO, Zheng et
/// al. 2025, eq. 7).
double sequence_log_ratio(const PolicyLossInputs& in, const PackedRange& range) {
  double sum = 0.0;
  for (std::size_t t = range.begin; t < range.end; ++t) {
    sum += in.logprob[t] - in.old_logprob[t];
  }
  return sum / static_cast<double>(range.end - range.begin);
}

/// Adds the clipped loss of one sequence, each token weighing `weight`.
void add_clipped_loss(const PolicyLossInputs& in,
                      const PackedRange& range,
                      double weight,
                      const PolicyLossOptions& options,
                      PolicyLoss& out) {
  const bool of_sequence = options.ratio == RatioLevel::kSequence;
  const double shared = of_sequence ? sequence_log_ratio(in, range) : 0.0;
  double shared_derivative = 0.0;
  for (std::size_t t = range.begin; t < range.end; ++t) {
    const double log_ratio = of_sequence ? shared : in.logprob[t] - in.old_logprob[t];
    const double ratio = std::exp(clamp_log_ratio(log_ratio));
    const ClippedLoss token = clipped_loss(ratio, in.advantages[t], options);
    const double derivative = std::abs(log_ratio) < kMaxLogRatio ? weight * token.derivative : 0.0;
    out.loss += weight * token.loss;
    (of_sequence ? shared_derivative : out.d_logprob[t]) += derivative;
    out.clipped_tokens += token.clipped ? 1.0 : 0.0;
    out.dual_clipped_tokens += token.dual_clipped ? 1.0 : 0.0;
    out.kl_old_sum += in.old_logprob[t] - in.logprob[t];
    out.ratio_max = std::max(out.ratio_max, ratio);
  }
  if (of_sequence) {
    for (std::size_t t = range.begin; t < range.end; ++t) {
      out.d_logprob[t] += shared_derivative / static_cast<double>(range.end - range.begin);
    }
  }
}

void add_kl(const PolicyLossInputs& in,
            const PackedRange& range,
            double weight,
            const PolicyLossOptions& options,
            PolicyLoss& out) {
  for (std::size_t t = range.begin; t < range.end; ++t) {
    const double kl = kl_estimate(options.kl_estimator, in.logprob[t], in.ref_logprob[t]);
    out.kl_ref_sum += kl;
    if (options.kl_coef != 0.0) {
      out.loss += weight * options.kl_coef * kl;
      out.d_logprob[t] +=
          weight * options.kl_coef *
          kl_estimate_derivative(options.kl_estimator, in.logprob[t], in.ref_logprob[t]);
    }
  }
}

void add_entropy_bonus(const PolicyLossInputs& in,
                       const PackedRange& range,
                       double weight,
                       double entropy_coef,
                       PolicyLoss& out) {
  for (std::size_t t = range.begin; t < range.end; ++t) {
    out.loss -= weight * entropy_coef * in.entropy[t];
    out.d_entropy[t] = -weight * entropy_coef;
  }
}

}  // namespace

PolicyLoss policy_loss(const PolicyLossInputs& inputs,
                       const LossNormaliser& normaliser,
                       const PolicyLossOptions& options) {
  check_inputs(inputs);
  PolicyLoss result;
  result.d_logprob.assign(inputs.logprob.size(), 0.0);
  result.d_entropy.assign(inputs.entropy.size(), 0.0);
  for (std::size_t i = 0; i + 1 < inputs.starts.size(); ++i) {
    const PackedRange range = packed_range(inputs.starts, i);
    if (range.begin == range.end) {
      continue;
    }
    const double weight = token_weight(options.aggregation, normaliser, range.end - range.begin);
    add_clipped_loss(inputs, range, weight, options, result);
    if (!inputs.ref_logprob.empty()) {
      add_kl(inputs, range, weight, options, result);
    }
    if (!inputs.entropy.empty()) {
      add_entropy_bonus(inputs, range, weight, options.entropy_coef, result);
    }
  }
  return result;
}

ValueLoss value_loss(std::span<const double> values,
                     std::span<const double> old_values,
                     std::span<const double> returns,
                     const LossNormaliser& normaliser,
                     double clip) {
  check(old_values.size() == values.size() && returns.size() == values.size(),
        "value_loss: values, old_values and returns differ in length");
  ValueLoss result;
  result.d_values.assign(values.size(), 0.0);
  check(values.empty() || normaliser.tokens > 0.0,
        "value_loss: the token count of the global mini-batch must be positive");
  for (std::size_t t = 0; t < values.size(); ++t) {
    const double error = values[t] - returns[t];
    const double clipped_error =
        clip > 0.0 ? std::clamp(values[t], old_values[t] - clip, old_values[t] + clip) - returns[t]
                   : error;
    // Where the clipped branch is the larger, V is outside the clip range and the derivative is 0.
    const bool clipped = clipped_error * clipped_error > error * error;
    const double chosen = clipped ? clipped_error : error;
    result.loss += 0.5 * chosen * chosen / normaliser.tokens;
    result.d_values[t] = clipped ? 0.0 : error / normaliser.tokens;
    result.clipped_tokens += clipped ? 1.0 : 0.0;
  }
  return result;
}

}  // namespace rpeg
