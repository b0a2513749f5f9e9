#pragma once

#include <cstdint>
#include <span>

namespace rpeg::cpu {

struct ScoreShape {
  std::int64_t rows = 0;
  std::int64_t vocabulary = 0;  ///< V
  double temperature = 1.0;     ///< scores are of softmax(logits / temperature)
};

/// logprob (rows) of the target token of each row and entropy (rows, nats) of the row's
/// distribution. `logits` (rows, V) is overwritten by the log-probabilities of all tokens.
template <typename T>
void token_scores_forward(const ScoreShape& shape,
                          std::span<const std::int32_t> targets,  // (rows)
                          T* logits,
                          T* logprob,
                          T* entropy);

/// Overwrites `logits` (rows, V) with the gradient by the logits, given the derivatives d_logprob
/// and d_entropy (each (rows)) of the loss. With p = softmax(z / temperature) and H its entropy:
/// temperature * dz_j = d_logprob * (1[j = target] - p_j) - d_entropy * p_j (log p_j + H).
template <typename T>
void token_scores_backward(const ScoreShape& shape,
                           std::span<const std::int32_t> targets,  // (rows)
                           const T* d_logprob,
                           const T* d_entropy,
                           T* logits);

}  // namespace rpeg::cpu
