#pragma once

#include <cstdint>
#include <span>

namespace rpeg::cpu {

/// Logits of the tokens [first_token, first_token + vocabulary): all of them, or those of one rank
/// of a vocabulary-parallel head. Scores come in three steps so that ranks can combine what each
/// found: maxima (the largest of all), sums (added up), then scores or derivatives.
struct ScoreShape {
  std::int64_t rows = 0;
  std::int64_t vocabulary = 0;  ///< logits in a row here
  double temperature = 1.0;     ///< scores are of softmax(logits / temperature)
  std::int64_t first_token = 0;
};

/// Numbers that token_sums writes for each row.
inline constexpr std::int64_t kTokenSums = 3;

/// maxima (rows): the largest of each row of logits (rows, vocabulary), -infinity of an empty one.
template <typename T>
void logit_maxima(const ScoreShape& shape, const T* logits, T* maxima);

/// Replaces `logits` by z = (logits - maxima) / temperature and writes sums (rows, kTokenSums):
/// Σ e^z, Σ z e^z, and z of the row's target where it is among these tokens, else 0.
template <typename T>
void token_sums(const ScoreShape& shape,
                std::span<const std::int32_t> targets,  // (rows)
                const T* maxima,
                T* logits,
                T* sums);

/// From the sums over the whole vocabulary: logprob (rows) of the target of each row and entropy
/// (rows, nats) of the row's distribution.
template <typename T>
void token_scores(std::int64_t rows, const T* sums, T* logprob, T* entropy);

/// Overwrites `logits`, which hold the z of token_sums, with the gradient by the logits, given the
/// sums over the whole vocabulary and the derivatives d_logprob and d_entropy (each (rows)) of the
/// loss. With p = softmax(z) and H its entropy:
/// temperature * dlogit_j = d_logprob * (1[j = target] - p_j) - d_entropy * p_j (log p_j + H).
template <typename T>
void token_scores_backward(const ScoreShape& shape,
                           std::span<const std::int32_t> targets,  // (rows)
                           const T* sums,
                           const T* d_logprob,
                           const T* d_entropy,
                           T* logits);

}  // namespace rpeg::cpu
