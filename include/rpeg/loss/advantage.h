#pragma once

/// Module `loss`: advantages and losses as pure functions of per-token numbers in double. Tokens of
/// the response are packed: sequence i owns entries [starts[i], starts[i+1]) of every per-token
/// array; there is no padding and no mask. Every normaliser is a count of the *global* mini-batch
/// and is passed in, so that results do not depend on how the batch is split over ranks and
/// micro-batches. Advantages: this header; policy and value losses: policy_loss.h.

#include <cstdint>
#include <span>
#include <vector>

namespace rpeg {

/// Per-token estimators of KL(π ‖ π_ref) (Schulman, "Approximating KL divergence", 2020).
enum class KlEstimator { kK1, kK2, kK3 };

/// k1 = x, k2 = x²/2, k3 = e^{−x} + x − 1 with x = logprob − ref_logprob (−x clamped to ±20).
double kl_estimate(KlEstimator estimator, double logprob, double ref_logprob);
/// Derivative of `kl_estimate` by `logprob`.
double kl_estimate_derivative(KlEstimator estimator, double logprob, double ref_logprob);

/// Rewards of tokens (PPO): −kl_coef · KL_t, plus the sequence's score at its last token.
std::vector<double> token_rewards(std::span<const std::int64_t> starts,
                                  std::span<const double> scores,       // (B)
                                  std::span<const double> logprob,      // (T) behaviour policy
                                  std::span<const double> ref_logprob,  // (T), empty: no KL term
                                  KlEstimator estimator,
                                  double kl_coef);

/// Generalised advantage estimation (Schulman et al., ICLR 2016, eq. 16): δ_t = r_t + γV_{t+1} −
/// V_t, A_t = δ_t + γλA_{t+1}; V and A are 0 past the last token. `returns` = A + V.
struct Gae {
  std::vector<double> advantages;  ///< (T)
  std::vector<double> returns;     ///< (T)
};
Gae generalised_advantages(std::span<const std::int64_t> starts,
                           std::span<const double> rewards,  // (T)
                           std::span<const double> values,   // (T)
                           double gamma,
                           double lambda);

/// Which variance whitening divides by.
enum class Whitening { kNone, kUnbiased, kBiased };

/// First and second moment sums of a set of numbers; sums of several ranks add up.
struct Moments {
  double count = 0.0;
  double sum = 0.0;
  double sum_of_squares = 0.0;  ///< about 0
};
Moments moments(std::span<const double> values);
/// Returns (x − mean) / sqrt(variance + 1e-8) of each value, with the moments of the global batch.
std::vector<double> whiten(std::span<const double> values, const Moments& global, Whitening kind);

/// How GRPO centres the rewards of a group (all samples of one prompt).
enum class GroupAdvantage {
  kStd,   ///< (r − mean) / (std_{n−1} + std_eps)
  kMean,  ///< r − mean (Dr.GRPO)
  kRloo,  ///< r − mean of the others
};
/// One advantage per sequence. `scores` holds whole groups of `group_size` consecutive sequences. A
/// group whose rewards are all equal gives exactly 0.
std::vector<double> group_advantages(std::span<const double> scores,
                                     std::int64_t group_size,
                                     GroupAdvantage kind,
                                     double std_eps);

}  // namespace rpeg
