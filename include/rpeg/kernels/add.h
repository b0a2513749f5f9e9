#pragma once

#include <cstdint>

namespace rpeg::cpu {

/// y (count) += x (count).
template <typename T>
void add(std::int64_t count, const T* x, T* y);

/// Every row of y (rows, width) += bias (width).
template <typename T>
void add_bias(std::int64_t rows, std::int64_t width, const T* bias, T* y);

/// dbias (width) += the sum of the rows of dy (rows, width), in the order of the rows.
template <typename T>
void add_bias_backward(std::int64_t rows, std::int64_t width, const T* dy, T* dbias);

/// Row t of y (rows, width) += scale[t] * x (width): the outer product of two vectors.
template <typename T>
void add_scaled_rows(std::int64_t rows, std::int64_t width, const T* scale, const T* x, T* y);

}  // namespace rpeg::cpu
