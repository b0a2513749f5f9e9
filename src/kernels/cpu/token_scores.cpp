#include "rpeg/kernels/token_scores.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/eigen.h"

namespace rpeg::cpu {
namespace {

/// Place of a token among those of the shape, or -1.
std::int64_t column_of(const ScoreShape& shape, std::int32_t token) {
  const std::int64_t column = token - shape.first_token;
  return column >= 0 && column < shape.vocabulary ? column : -1;
}

}  // namespace

template <typename T>
void logit_maxima(const ScoreShape& shape, const T* logits, T* maxima) {
  for (std::int64_t t = 0; t < shape.rows; ++t) {
    const ConstArrayMap<T> row(logits + t * shape.vocabulary, shape.vocabulary);
    maxima[t] = shape.vocabulary > 0 ? row.maxCoeff() : -std::numeric_limits<T>::infinity();
  }
}

template <typename T>
void token_sums(const ScoreShape& shape,
                std::span<const std::int32_t> targets,
                const T* maxima,
                T* logits,
                T* sums) {
  const T inverse_temperature = static_cast<T>(1.0 / shape.temperature);
  for (std::int64_t t = 0; t < shape.rows; ++t) {
    ArrayMap<T> row(logits + t * shape.vocabulary, shape.vocabulary);
    row = (row - maxima[t]) * inverse_temperature;
    const std::int64_t target = column_of(shape, targets[static_cast<std::size_t>(t)]);
    T* out = sums + t * kTokenSums;
    out[0] = row.exp().sum();
    out[1] = (row * row.exp()).sum();
    out[2] = target < 0 ? T(0) : row[target];
  }
}

template <typename T>
void token_scores(std::int64_t rows, const T* sums, T* logprob, T* entropy) {
  for (std::int64_t t = 0; t < rows; ++t) {
    const T* row = sums + t * kTokenSums;
    const T log_sum = std::log(row[0]);
    logprob[t] = row[2] - log_sum;
    entropy[t] = log_sum - row[1] / row[0];
  }
}

template <typename T>
void token_scores_backward(const ScoreShape& shape,
                           std::span<const std::int32_t> targets,
                           const T* sums,
                           const T* d_logprob,
                           const T* d_entropy,
                           T* logits) {
  const T inverse_temperature = static_cast<T>(1.0 / shape.temperature);
  for (std::int64_t t = 0; t < shape.rows; ++t) {
    ArrayMap<T> row(logits + t * shape.vocabulary, shape.vocabulary);
    const T inverse_sum = T(1) / sums[t * kTokenSums];
    const T by_logprob = d_logprob[t] * inverse_temperature;
    const T by_entropy = d_entropy[t] * inverse_temperature;
    if (by_entropy == T(0)) {
      row = row.exp() * (-by_logprob * inverse_sum);
    } else {
      // log p + H = z - Σ z e^z / Σ e^z: the logarithm of the sum cancels.
      const T mean = sums[t * kTokenSums + 1] * inverse_sum;
      row = row.exp() * -inverse_sum * (by_logprob + by_entropy * (row - mean));
    }
    const std::int64_t target = column_of(shape, targets[static_cast<std::size_t>(t)]);
    if (target >= 0) {
      row[target] += by_logprob;
    }
  }
}

template void logit_maxima(const ScoreShape&, const float*, float*);
template void logit_maxima(const ScoreShape&, const double*, double*);
template void token_sums(
    const ScoreShape&, std::span<const std::int32_t>, const float*, float*, float*);
template void token_sums(
    const ScoreShape&, std::span<const std::int32_t>, const double*, double*, double*);
template void token_scores(std::int64_t, const float*, float*, float*);
template void token_scores(std::int64_t, const double*, double*, double*);
template void token_scores_backward(const ScoreShape&,
                                    std::span<const std::int32_t>,
                                    const float*,
                                    const float*,
                                    const float*,
                                    float*);
template void token_scores_backward(const ScoreShape&,
                                    std::span<const std::int32_t>,
                                    const double*,
                                    const double*,
                                    const double*,
                                    double*);

}  // namespace rpeg::cpu
