#include "rpeg/kernels/rope.h"

#include <cmath>

#include "kernels/cpu/eigen.h"

namespace rpeg::cpu {
namespace {

/// Rotates every pair (u, v) to (u c - v s, v c + u s); `direction` is the sign of the sine.
template <typename T>
void rotate(const RopeShape& shape,
            std::span<const std::int32_t> positions,
            const T* cosine,
            const T* sine,
            T direction,
            T* x) {
  const std::int64_t half = shape.head_dim / 2;
  for (std::int64_t t = 0; t < shape.rows; ++t) {
    const std::int64_t row = positions[static_cast<std::size_t>(t)] * half;
    const T* c = cosine + row;
    const T* s = sine + row;
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      T* __restrict u = x + t * shape.row_stride + head * shape.head_dim;
      T* __restrict v = u + half;
      for (std::int64_t i = 0; i < half; ++i) {
        const T first = u[i];
        const T second = v[i];
        u[i] = first * c[i] - direction * second * s[i];
        v[i] = second * c[i] + direction * first * s[i];
      }
    }
  }
}

}  // namespace

std::vector<double> rope_frequencies(double theta, std::int64_t head_dim) {
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    frequencies.push_back(
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim)));
  }
  return frequencies;
}

template <typename T>
void rope_table(std::span<const double> frequencies, std::int64_t positions, T* cosine, T* sine) {
  for (std::int64_t t = 0; t < positions; ++t) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(t) * frequency;
      *cosine++ = static_cast<T>(std::cos(angle));
      *sine++ = static_cast<T>(std::sin(angle));
    }
  }
}

template <typename T>
void rope_forward(const RopeShape& shape,
                  std::span<const std::int32_t> positions,
                  const T* cosine,
                  const T* sine,
                  T* x) {
  rotate(shape, positions, cosine, sine, T(1), x);
}

template <typename T>
void rope_backward(const RopeShape& shape,
                   std::span<const std::int32_t> positions,
                   const T* cosine,
                   const T* sine,
                   T* dx) {
  rotate(shape, positions, cosine, sine, T(-1), dx);
}

template void rope_table(std::span<const double>, std::int64_t, float*, float*);
template void rope_table(std::span<const double>, std::int64_t, double*, double*);
template void rope_forward(
    const RopeShape&, std::span<const std::int32_t>, const float*, const float*, float*);
template void rope_forward(
    const RopeShape&, std::span<const std::int32_t>, const double*, const double*, double*);
template void rope_backward(
    const RopeShape&, std::span<const std::int32_t>, const float*, const float*, float*);
template void rope_backward(
    const RopeShape&, std::span<const std::int32_t>, const double*, const double*, double*);

}  // namespace rpeg::cpu
