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

template <typename T>
void rope_table(double theta, std::int64_t head_dim, std::int64_t positions, T* cosine, T* sine) {
  const std::int64_t half = head_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double frequency =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    for (std::int64_t t = 0; t < positions; ++t) {
      const double angle = static_cast<double>(t) * frequency;
      cosine[t * half + i] = static_cast<T>(std::cos(angle));
      sine[t * half + i] = static_cast<T>(std::sin(angle));
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

template void rope_table(double, std::int64_t, std::int64_t, float*, float*);
template void rope_table(double, std::int64_t, std::int64_t, double*, double*);
template void rope_forward(
    const RopeShape&, std::span<const std::int32_t>, const float*, const float*, float*);
template void rope_forward(
    const RopeShape&, std::span<const std::int32_t>, const double*, const double*, double*);
template void rope_backward(
    const RopeShape&, std::span<const std::int32_t>, const float*, const float*, float*);
template void rope_backward(
    const RopeShape&, std::span<const std::int32_t>, const double*, const double*, double*);

}  // namespace rpeg::cpu
