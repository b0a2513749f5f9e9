#include "rpeg/kernels/token_scores.h"

#include <cmath>

#include "kernels/cpu/eigen.h"

namespace rpeg::cpu {
namespace {

/// Turns a row of logits into log softmax(row / temperature).
template <typename T>
void log_softmax(ArrayMap<T> row, T inverse_temperature) {
  row = (row - row.maxCoeff()) * inverse_temperature;
  row -= std::log(row.exp().sum());
}

}  // namespace

template <typename T>
void token_scores_forward(const ScoreShape& shape,
                          std::span<const std::int32_t> targets,
                          T* logits,
                          T* logprob,
                          T* entropy) {
  const T inverse_temperature = static_cast<T>(1.0 / shape.temperature);
  for (std::int64_t t = 0; t < shape.rows; ++t) {
    ArrayMap<T> row(logits + t * shape.vocabulary, shape.vocabulary);
    log_softmax(row, inverse_temperature);
    logprob[t] = row[targets[static_cast<std::size_t>(t)]];
    entropy[t] = -(row.exp() * row).sum();
  }
}

template <typename T>
void token_scores_backward(const ScoreShape& shape,
                           std::span<const std::int32_t> targets,
                           const T* d_logprob,
                           const T* d_entropy,
                           T* logits) {
  const T inverse_temperature = static_cast<T>(1.0 / shape.temperature);
  for (std::int64_t t = 0; t < shape.rows; ++t) {
    ArrayMap<T> row(logits + t * shape.vocabulary, shape.vocabulary);
    log_softmax(row, inverse_temperature);
    const T by_logprob = d_logprob[t] * inverse_temperature;
    const T by_entropy = d_entropy[t] * inverse_temperature;
    if (by_entropy == T(0)) {
      row = -by_logprob * row.exp();
    } else {
      const T entropy = -(row.exp() * row).sum();
      row = -row.exp() * (by_logprob + by_entropy * (row + entropy));
    }
    row[targets[static_cast<std::size_t>(t)]] += by_logprob;
  }
}

template void token_scores_forward(
    const ScoreShape&, std::span<const std::int32_t>, float*, float*, float*);
template void token_scores_forward(
    const ScoreShape&, std::span<const std::int32_t>, double*, double*, double*);
template void token_scores_backward(
    const ScoreShape&, std::span<const std::int32_t>, const float*, const float*, float*);
template void token_scores_backward(
    const ScoreShape&, std::span<const std::int32_t>, const double*, const double*, double*);

}  // namespace rpeg::cpu
