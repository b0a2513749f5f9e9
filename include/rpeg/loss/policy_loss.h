#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rpeg/loss/advantage.h"

namespace rpeg {

/// How per-token losses become one number.
enum class Aggregation {
  kTokenMean,            ///< Σ L / tokens of the global mini-batch
  kSeqMeanTokenMean,     ///< mean over sequences of the mean over their tokens (original GRPO)
  kSeqMeanTokenSumNorm,  ///< mean over sequences of Σ L / max length (Dr.GRPO)
};

/// What the ratio ρ is of.
enum class RatioLevel { kToken, kSequence };  ///< kSequence: GSPO, exp(mean of log-ratios)

/// Counts of the global mini-batch that the aggregation divides by.
struct LossNormaliser {
  double tokens = 0.0;      ///< response tokens
  double sequences = 0.0;   ///< sequences
  double max_length = 0.0;  ///< L_max of kSeqMeanTokenSumNorm
};

struct PolicyLossOptions {
  double clip_low = 0.2;
  double clip_high = 0.2;
  double dual_clip = 0.0;  ///< 0: off; else c > 1: for A < 0 the loss is at most −A·c
  RatioLevel ratio = RatioLevel::kToken;
  Aggregation aggregation = Aggregation::kTokenMean;
  double kl_coef = 0.0;  ///< KL against the reference in the loss (GRPO)
  KlEstimator kl_estimator = KlEstimator::kK3;
  double entropy_coef = 0.0;
};

/// Inputs of one rank's part of a mini-batch, per response token unless said otherwise.
struct PolicyLossInputs {
  std::span<const std::int64_t> starts;  ///< (B+1)
  std::span<const double> logprob;       ///< (T) current policy
  std::span<const double> old_logprob;   ///< (T) π_old of the ratio: the behaviour policy, or the
                                         ///< policy at the start of the update (recomputed)
  std::span<const double> advantages;    ///< (T)
  std::span<const double> ref_logprob;   ///< (T), empty: no KL term
  std::span<const double> entropy;       ///< (T), empty: no entropy bonus
  /// (T), the policy that sampled, for the decoupled loss, in which old_logprob is π_prox, the
  /// policy at the start of the update. Empty: not decoupled.
  std::span<const double> behaviour_logprob = {};
};

/// This part's share of the loss (shares of all parts add up to the loss of the mini-batch), its
/// derivatives, and sums for the metrics.
struct PolicyLoss {
  double loss = 0.0;
  std::vector<double> d_logprob;     ///< (T) ∂loss/∂logprob
  std::vector<double> d_entropy;     ///< (T) or empty
  double clipped_tokens = 0.0;       ///< tokens where the clipped branch is the larger
  double dual_clipped_tokens = 0.0;  ///< tokens limited by dual_clip
  double kl_old_sum = 0.0;           ///< Σ (old_logprob − logprob)
  double kl_ref_sum = 0.0;           ///< Σ KL estimate against the reference
  double ratio_max = 0.0;
  double behaviour_weight_sum = 0.0;  ///< Σ of the decoupled loss's weights (1 where not decoupled)
};

/// Clipped policy loss (PPO, Schulman et al. 2017, eq. 7; GRPO; GSPO): max(−Aρ, −A·clip(ρ,
/// 1−clip_low, 1+clip_high)), log ρ clamped to ±20, plus kl_coef·KL − entropy_coef·entropy,
/// aggregated.
///
/// Decoupled (Hilton et al., "Batch size-invariance for policy optimization", 2022, eq. 3; AReaL,
/// Fu et al. 2025, eq. 5): the clipped part is multiplied by exp(log π_prox − log π_behaviour), the
/// log-ratio clamped to ±20, a constant without gradient. With kSequence it is of the sequence's
/// mean, as ρ is.
PolicyLoss policy_loss(const PolicyLossInputs& inputs,
                       const LossNormaliser& normaliser,
                       const PolicyLossOptions& options);

struct ValueLoss {
  double loss = 0.0;
  std::vector<double> d_values;  ///< (T)
  double clipped_tokens = 0.0;   ///< tokens where the clipped branch is the larger
};

/// Value loss ½·max((V−R)², (clip(V, V_old ± clip) − R)²), aggregated as the policy loss is; clip ≤
/// 0: no clipping. `starts` (B+1) may be empty where the lengths of the sequences do not matter
/// (all but kSeqMeanTokenMean).
ValueLoss value_loss(std::span<const double> values,
                     std::span<const double> old_values,
                     std::span<const double> returns,
                     const LossNormaliser& normaliser,
                     double clip,
                     Aggregation aggregation,
                     std::span<const std::int64_t> starts);

}  // namespace rpeg
