#include "rpeg/loss/policy_loss.h"

#include <algorithm>
#include <array>
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
  check(in.behaviour_logprob.empty() || in.behaviour_logprob.size() == tokens,
        "policy_loss: behaviour_logprob and logprob differ in length");
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
  check(divisor > 0.0, "loss: the counts of the global mini-batch must be positive");
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

/// Sets the log-ratios of a sequence's tokens: each token's own, or for all their mean (GSPO, Zheng
/// et al. 2025, eq. 7).
void log_ratios(std::span<const double> numerator,
                std::span<const double> denominator,
                RatioLevel level,
                std::vector<double>& out) {
  out.resize(numerator.size());
  double sum = 0.0;
  for (std::size_t t = 0; t < numerator.size(); ++t) {
    out[t] = numerator[t] - denominator[t];
    sum += out[t];
  }
  if (level == RatioLevel::kSequence) {
    std::fill(out.begin(), out.end(), sum / static_cast<double>(out.size()));
  }
}

/// Scratch space for the tokens of one sequence.
struct SequenceRatios {
  std::vector<double> log_ratio;      ///< log ρ
  std::vector<double> log_behaviour;  ///< log π_prox − log π_behaviour, or empty
};

/// Adds the clipped loss of one sequence, each token weighing `weight`.
void add_clipped_loss(const PolicyLossInputs& in,
                      const PackedRange& range,
                      double weight,
                      const PolicyLossOptions& options,
                      SequenceRatios& ratios,
                      PolicyLoss& out) {
  const std::size_t length = range.end - range.begin;
  const auto part = [&](std::span<const double> all) { return all.subspan(range.begin, length); };
  log_ratios(part(in.logprob), part(in.old_logprob), options.ratio, ratios.log_ratio);
  const bool decoupled = !in.behaviour_logprob.empty();
  if (decoupled) {
    log_ratios(
        part(in.old_logprob), part(in.behaviour_logprob), options.ratio, ratios.log_behaviour);
  }
  const bool of_sequence = options.ratio == RatioLevel::kSequence;
  double shared_derivative = 0.0;
  for (std::size_t i = 0; i < length; ++i) {
    const std::size_t t = range.begin + i;
    const double ratio = std::exp(clamp_log_ratio(ratios.log_ratio[i]));
    const double behaviour_weight =
        decoupled ? std::exp(clamp_log_ratio(ratios.log_behaviour[i])) : 1.0;
    const ClippedLoss token = clipped_loss(ratio, in.advantages[t], options);
    const double scale = weight * behaviour_weight;
    const double derivative =
        std::abs(ratios.log_ratio[i]) < kMaxLogRatio ? scale * token.derivative : 0.0;
    out.loss += scale * token.loss;
    (of_sequence ? shared_derivative : out.d_logprob[t]) += derivative;
    out.clipped_tokens += token.clipped ? 1.0 : 0.0;
    out.dual_clipped_tokens += token.dual_clipped ? 1.0 : 0.0;
    out.kl_old_sum += in.old_logprob[t] - in.logprob[t];
    out.ratio_max = std::max(out.ratio_max, ratio);
    out.behaviour_weight_sum += behaviour_weight;
  }
  for (std::size_t t = range.begin; of_sequence && t < range.end; ++t) {
    out.d_logprob[t] += shared_derivative / static_cast<double>(length);
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
  SequenceRatios ratios;
  result.d_logprob.assign(inputs.logprob.size(), 0.0);
  result.d_entropy.assign(inputs.entropy.size(), 0.0);
  for (std::size_t i = 0; i + 1 < inputs.starts.size(); ++i) {
    const PackedRange range = packed_range(inputs.starts, i);
    if (range.begin == range.end) {
      continue;
    }
    const double weight = token_weight(options.aggregation, normaliser, range.end - range.begin);
    add_clipped_loss(inputs, range, weight, options, ratios, result);
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
                     double clip,
                     Aggregation aggregation,
                     std::span<const std::int64_t> starts) {
  check(old_values.size() == values.size() && returns.size() == values.size(),
        "value_loss: values, old_values and returns differ in length");
  check(!starts.empty() || aggregation != Aggregation::kSeqMeanTokenMean,
        "value_loss: the mean over the tokens of a sequence needs the starts of the sequences");
  const std::array<std::int64_t, 2> whole = {0, static_cast<std::int64_t>(values.size())};
  const std::span<const std::int64_t> bounds = starts.empty() ? whole : starts;
  check_packed(bounds, values.size());
  ValueLoss result;
  result.d_values.assign(values.size(), 0.0);
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    const PackedRange range = packed_range(bounds, i);
    if (range.begin == range.end) {
      continue;
    }
    const double weight = token_weight(aggregation, normaliser, range.end - range.begin);
    for (std::size_t t = range.begin; t < range.end; ++t) {
      const double error = values[t] - returns[t];
      const double clipped_error =
          clip > 0.0
              ? std::clamp(values[t], old_values[t] - clip, old_values[t] + clip) - returns[t]
              : error;
      // Where the clipped branch is the larger, V is outside the clip range: the derivative is 0.
      const bool clipped = clipped_error * clipped_error > error * error;
      const double chosen = clipped ? clipped_error : error;
      result.loss += 0.5 * chosen * chosen * weight;
      result.d_values[t] = clipped ? 0.0 : error * weight;
      result.clipped_tokens += clipped ? 1.0 : 0.0;
    }
  }
  return result;
}

}  // namespace rpeg
