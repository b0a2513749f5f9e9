#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rpeg {

enum class DpoLossKind {
  kSigmoid,  ///< −(1−s) log σ(βΔ) − s log σ(−βΔ), s: label smoothing
  kIpo,      ///< (Δ − 1/(2β))²
  kHinge,    ///< max(0, 1 − βΔ)
};

struct DpoLossOptions {
  DpoLossKind kind = DpoLossKind::kSigmoid;
  double beta = 0.1;             ///< above 0
  double label_smoothing = 0.0;  ///< kSigmoid only: share of wrong labels assumed, [0, 0.5)
  bool operator==(const DpoLossOptions&) const = default;
};

/// One rank's part of the pairs of a mini-batch. Each number is the sum of the log-probabilities of
/// all tokens of one response, its stop token included.
struct DpoLossInputs {
  std::span<const double> policy_chosen;       ///< (P) current policy, preferred response
  std::span<const double> policy_rejected;     ///< (P)
  std::span<const double> reference_chosen;    ///< (P)
  std::span<const double> reference_rejected;  ///< (P)
};

/// This part's share of the loss (shares of all parts add up to the loss of the mini-batch), its
/// derivatives by the policy's summed log-probabilities, and sums for the metrics.
struct DpoLoss {
  double loss = 0.0;
  std::vector<double> d_chosen;      ///< (P); of each token of the chosen response alike
  std::vector<double> d_rejected;    ///< (P)
  double margin_sum = 0.0;           ///< Σ βΔ
  double accurate_pairs = 0.0;       ///< pairs with Δ > 0
  double chosen_reward_sum = 0.0;    ///< Σ β (log π − log π_ref) of the chosen response
  double rejected_reward_sum = 0.0;  ///< the same of the rejected one
};

/// Direct preference optimisation (Rafailov et al. 2023, eq. 7; label smoothing: Mitchell, "A note
/// on DPO with noisy preferences", 2023; ipo: Azar et al. 2023, eq. 17; hinge: Zhao et al.,
/// SLiC-HF, 2023, as in Liu et al., RSO, 2023), the mean over `pairs`, the number of kept pairs of
/// the *global* mini-batch, of a function of Δ = (log π − log π_ref)(chosen) − (log π − log
/// π_ref)(rejected).
DpoLoss dpo_loss(const DpoLossInputs& inputs, double pairs, const DpoLossOptions& options);

/// Two samples of one prompt, by index.
struct SamplePair {
  std::int64_t chosen = 0;
  std::int64_t rejected = 0;
  bool operator==(const SamplePair&) const = default;
};

/// Online DPO: the best and the worst of the samples of one prompt by their scores; among equals
/// the lower index. Nothing when all scores are equal: such a prompt has no preference, and its
/// pair does not count in `pairs`.
std::optional<SamplePair> best_against_worst(std::span<const double> scores);

}  // namespace rpeg
