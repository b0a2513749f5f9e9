#pragma once

#include <cstdint>

namespace rpeg::cpu {

struct RmsNormShape {
  std::int64_t rows = 0;
  std::int64_t width = 0;  ///< h
  double eps = 0.0;
};

/// y = x / sqrt(mean(x^2) + eps) * weight per row (Zhang & Sennrich, "Root mean square layer
/// normalization", 2019). x, y (rows, h); weight (h); inv_rms (rows) is kept for the backward pass.
template <typename T>
void rmsnorm_forward(const RmsNormShape& shape, const T* x, const T* weight, T* y, T* inv_rms);

/// dx (rows, h) += and dweight (h) += the gradient, from dy (rows, h) and what the forward pass
/// saw.
template <typename T>
void rmsnorm_backward(const RmsNormShape& shape,
                      const T* x,
                      const T* weight,
                      const T* inv_rms,
                      const T* dy,
                      T* dx,
                      T* dweight);

}  // namespace rpeg::cpu
