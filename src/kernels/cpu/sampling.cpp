#include "rpeg/kernels/sampling.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/eigen.h"

namespace rpeg::cpu {

template <typename T>
void relative_logits(std::int64_t rows,
                     std::int64_t vocabulary,
                     double temperature,
                     const T* maxima,
                     T* logits,
                     T* sum_exp) {
  const T inverse_temperature = static_cast<T>(1.0 / temperature);
  for (std::int64_t t = 0; t < rows; ++t) {
    ArrayMap<T> row(logits + t * vocabulary, vocabulary);
    row = (row - maxima[t]) * inverse_temperature;
    sum_exp[t] = row.exp().sum();
  }
}

void gumbel_from_words(std::span<const std::uint32_t> words, double* noise) {
  constexpr std::size_t kChunk = 16;
  // A chunk of fixed size in aligned memory: the noise of a token never depends on its neighbours.
  Eigen::Array<double, kChunk, 1> chunk = Eigen::Array<double, kChunk, 1>::Constant(0.5);
  for (std::size_t first = 0; first < words.size(); first += kChunk) {
    const std::size_t count = std::min(kChunk, words.size() - first);
    for (std::size_t i = 0; i < count; ++i) {
      chunk[static_cast<Eigen::Index>(i)] = (static_cast<double>(words[first + i]) + 0.5) * 0x1p-32;
    }
    chunk = -(-chunk.log()).log();
    std::copy_n(chunk.data(), count, noise + first);
    chunk.setConstant(0.5);
  }
}

template void relative_logits(std::int64_t, std::int64_t, double, const float*, float*, float*);
template void relative_logits(std::int64_t, std::int64_t, double, const double*, double*, double*);

}  // namespace rpeg::cpu
