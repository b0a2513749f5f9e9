#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rpeg::cpu {

/// Rows of heads to rotate: head i of row t stands at x + t * row_stride + i * head_dim.
struct RopeShape {
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;    ///< d, even
  std::int64_t row_stride = 0;  ///< elements between rows, at least heads * d
};

/// Returns the d / 2 angles per position, theta^(-2 i / d) (Su et al., "RoFormer", 2021,
/// equation 15).
std::vector<double> rope_frequencies(double theta, std::int64_t head_dim);

/// Fills cosine and sine, each (positions, d / 2), of position * frequencies[i].
template <typename T>
void rope_table(std::span<const double> frequencies, std::int64_t positions, T* cosine, T* sine);

/// Rotates in place the pairs (x_i, x_{i + d/2}) of each head of row t by the angle of
/// `positions[t]`: the half-split convention of Hugging Face checkpoints.
template <typename T>
void rope_forward(const RopeShape& shape,
                  std::span<const std::int32_t> positions,  // (rows)
                  const T* cosine,
                  const T* sine,
                  T* x);

/// Rotates a gradient in place by the opposite angle.
template <typename T>
void rope_backward(const RopeShape& shape,
                   std::span<const std::int32_t> positions,  // (rows)
                   const T* cosine,
                   const T* sine,
                   T* dx);

}  // namespace rpeg::cpu
