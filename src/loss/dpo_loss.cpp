#include "rpeg/loss/dpo_loss.h"

#include <algorithm>
#include <cmath>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// A function of Δ and its derivative.
struct PairLoss {
  double loss = 0.0;
  double derivative = 0.0;
};

/// −log σ(x) = log(1 + e^{−x}), without overflow.
double minus_log_sigmoid(double x) {
  return std::max(0.0, -x) + std::log1p(std::exp(-std::abs(x)));
}

double sigmoid(double x) {
  return x >= 0.0 ? 1.0 / (1.0 + std::exp(-x)) : std::exp(x) / (1.0 + std::exp(x));
}

PairLoss pair_loss(double delta, const DpoLossOptions& options) {
  const double margin = options.beta * delta;
  switch (options.kind) {
    case DpoLossKind::kSigmoid: {
      const double s = options.label_smoothing;
      // (1−s)·(−σ(−x)) + s·σ(x), with σ(−x) = 1 − σ(x)
      return {(1.0 - s) * minus_log_sigmoid(margin) + s * minus_log_sigmoid(-margin),
              options.beta * (s * sigmoid(margin) - (1.0 - s) * sigmoid(-margin))};
    }
    case DpoLossKind::kIpo: {
      const double error = delta - 1.0 / (2.0 * options.beta);
      return {error * error, 2.0 * error};
    }
    case DpoLossKind::kHinge:
      return margin < 1.0 ? PairLoss{1.0 - margin, -options.beta} : PairLoss{};
  }
  return {};
}

void check_inputs(const DpoLossInputs& in, double pairs, const DpoLossOptions& options) {
  const std::size_t count = in.policy_chosen.size();
  check(in.policy_rejected.size() == count && in.reference_chosen.size() == count &&
            in.reference_rejected.size() == count,
        "dpo_loss: chosen and rejected of policy and reference differ in length");
  check(count == 0 || pairs >= static_cast<double>(count),
        "dpo_loss: the pairs of a part are among those of the global mini-batch");
  check(options.beta > 0.0, "dpo_loss: beta is above 0");
  check(options.label_smoothing == 0.0 || options.kind == DpoLossKind::kSigmoid,
        "dpo_loss: only the sigmoid loss smooths labels");
}

}  // namespace

DpoLoss dpo_loss(const DpoLossInputs& inputs, double pairs, const DpoLossOptions& options) {
  check_inputs(inputs, pairs, options);
  DpoLoss result;
  for (std::size_t i = 0; i < inputs.policy_chosen.size(); ++i) {
    const double chosen = inputs.policy_chosen[i] - inputs.reference_chosen[i];
    const double rejected = inputs.policy_rejected[i] - inputs.reference_rejected[i];
    const PairLoss pair = pair_loss(chosen - rejected, options);
    result.loss += pair.loss / pairs;
    result.d_chosen.push_back(pair.derivative / pairs);
    result.d_rejected.push_back(-pair.derivative / pairs);
    result.margin_sum += options.beta * (chosen - rejected);
    result.accurate_pairs += chosen > rejected ? 1.0 : 0.0;
    result.chosen_reward_sum += options.beta * chosen;
    result.rejected_reward_sum += options.beta * rejected;
  }
  return result;
}

std::optional<SamplePair> best_against_worst(std::span<const double> scores) {
  const auto best = std::max_element(scores.begin(), scores.end());  // the first of equals
  const auto worst = std::min_element(scores.begin(), scores.end());
  if (best == scores.end() || *best == *worst) {
    return std::nullopt;
  }
  return SamplePair{best - scores.begin(), worst - scores.begin()};
}

}  // namespace rpeg
