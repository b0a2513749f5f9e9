#include "rpeg/loss/advantage.h"

#include <algorithm>
#include <cmath>

#include "loss/packed.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// e^y − y − 1, which loses all digits near 0 when written that way.
double exp_minus_first_order(double y) {
  return std::abs(y) < 1e-5 ? y * y / 2.0 + y * y * y / 6.0 : std::expm1(y) - y;
}

double whitening_variance(const Moments& global, Whitening kind) {
  const double mean = global.sum / global.count;
  const double biased = std::max(0.0, global.sum_of_squares / global.count - mean * mean);
  if (kind == Whitening::kBiased) {
    return biased;
  }
  return global.count > 1.0 ? biased * global.count / (global.count - 1.0) : 0.0;
}

/// Writes the advantages of one group.
void group_advantages_into(std::span<const double> scores,
                           GroupAdvantage kind,
                           double std_eps,
                           std::span<double> out) {
  const auto n = static_cast<double>(scores.size());
  const auto [low, high] = std::minmax_element(scores.begin(), scores.end());
  if (*low == *high) {
    std::fill(out.begin(), out.end(), 0.0);
    return;
  }
  double mean = 0.0;
  for (const double r : scores) {
    mean += r / n;
  }
  double squares = 0.0;
  for (const double r : scores) {
    squares += (r - mean) * (r - mean);
  }
  double scale = 1.0;
  switch (kind) {
    case GroupAdvantage::kStd:
      scale = 1.0 / (std::sqrt(squares / (n - 1.0)) + std_eps);
      break;
    case GroupAdvantage::kMean:
      break;
    case GroupAdvantage::kRloo:  // r − (n·mean − r)/(n − 1) = (r − mean)·n/(n − 1)
      scale = n / (n - 1.0);
      break;
  }
  for (std::size_t i = 0; i < scores.size(); ++i) {
    out[i] = (scores[i] - mean) * scale;
  }
}

}  // namespace

double kl_estimate(KlEstimator estimator, double logprob, double ref_logprob) {
  const double x = logprob - ref_logprob;
  switch (estimator) {
    case KlEstimator::kK1:
      return x;
    case KlEstimator::kK2:
      return 0.5 * x * x;
    case KlEstimator::kK3:
      return exp_minus_first_order(clamp_log_ratio(-x));
  }
  return 0.0;
}

double kl_estimate_derivative(KlEstimator estimator, double logprob, double ref_logprob) {
  const double x = logprob - ref_logprob;
  switch (estimator) {
    case KlEstimator::kK1:
      return 1.0;
    case KlEstimator::kK2:
      return x;
    case KlEstimator::kK3:
      return std::abs(x) < kMaxLogRatio ? -std::expm1(-x) : 0.0;
  }
  return 0.0;
}

std::vector<double> token_rewards(std::span<const std::int64_t> starts,
                                  std::span<const double> scores,
                                  std::span<const double> logprob,
                                  std::span<const double> ref_logprob,
                                  KlEstimator estimator,
                                  double kl_coef) {
  const std::size_t sequences = check_packed(starts, logprob.size());
  check(scores.size() == sequences, "token_rewards: one score a sequence");
  check(ref_logprob.empty() || ref_logprob.size() == logprob.size(),
        "token_rewards: ref_logprob and logprob differ in length");
  std::vector<double> rewards(logprob.size(), 0.0);
  for (std::size_t t = 0; t < ref_logprob.size(); ++t) {
    rewards[t] = -kl_coef * kl_estimate(estimator, logprob[t], ref_logprob[t]);
  }
  for (std::size_t i = 0; i < sequences; ++i) {
    const PackedRange range = packed_range(starts, i);
    check(range.begin < range.end, "token_rewards: a response has at least one token");
    rewards[range.end - 1] += scores[i];
  }
  return rewards;
}

Gae generalised_advantages(std::span<const std::int64_t> starts,
                           std::span<const double> rewards,
                           std::span<const double> values,
                           double gamma,
                           double lambda) {
  const std::size_t sequences = check_packed(starts, rewards.size());
  check(values.size() == rewards.size(), "generalised_advantages: values and rewards differ");
  Gae gae{std::vector<double>(rewards.size()), std::vector<double>(rewards.size())};
  for (std::size_t i = 0; i < sequences; ++i) {
    const PackedRange range = packed_range(starts, i);
    double next_value = 0.0;
    double next_advantage = 0.0;
    for (std::size_t t = range.end; t-- > range.begin;) {
      const double delta = rewards[t] + gamma * next_value - values[t];
      next_advantage = delta + gamma * lambda * next_advantage;
      next_value = values[t];
      gae.advantages[t] = next_advantage;
      gae.returns[t] = next_advantage + values[t];
    }
  }
  return gae;
}

Moments moments(std::span<const double> values) {
  Moments result;
  result.count = static_cast<double>(values.size());
  for (const double value : values) {
    result.sum += value;
    result.sum_of_squares += value * value;
  }
  return result;
}

std::vector<double> whiten(std::span<const double> values, const Moments& global, Whitening kind) {
  std::vector<double> result(values.begin(), values.end());
  if (kind == Whitening::kNone || values.empty()) {
    return result;
  }
  check(global.count >= static_cast<double>(values.size()),
        "whiten: the moments are of the global batch, of which the values are a part");
  const double mean = global.sum / global.count;
  const double scale = 1.0 / std::sqrt(whitening_variance(global, kind) + 1e-8);
  for (double& value : result) {
    value = (value - mean) * scale;
  }
  return result;
}

std::vector<double> group_advantages(std::span<const double> scores,
                                     std::int64_t group_size,
                                     GroupAdvantage kind,
                                     double std_eps) {
  check(group_size >= 1, "group_advantages: group_size is at least 1");
  const auto size = static_cast<std::size_t>(group_size);
  check(scores.size() % size == 0, "group_advantages: scores hold whole groups");
  std::vector<double> result(scores.size());
  for (std::size_t first = 0; first < scores.size(); first += size) {
    group_advantages_into(
        scores.subspan(first, size), kind, std_eps, std::span<double>(result).subspan(first, size));
  }
  return result;
}

}  // namespace rpeg
