#pragma once

/// Module `kernels`: the arithmetic of a transformer on one device, as a flat list of free
/// functions over raw row-major buffers, in namespace `rpeg::cpu`. Every function exists for float
/// and double, runs on the calling thread (matrix products on more where threads.h says so),
/// allocates nothing of the size of its input, and adds in a fixed order: equal inputs at equally
/// aligned addresses give equal bits. Start here (matrix products), then attention.h. Letters of
/// shapes: T rows (tokens), h model width, a query heads, n key-value heads, d head width, f
/// feed-forward width, V vocabulary.

#include <cstdint>
#include <string>

namespace rpeg::cpu {

/// Shape of y = x . w^T: x (rows, in), w (out, in), y (rows, out).
struct LinearShape {
  std::int64_t rows = 0;
  std::int64_t out = 0;
  std::int64_t in = 0;
};

// Float products go to oneDNN where the build has it and they are large enough; the rest, and
// double, to Eigen.

/// The libraries that multiply, with versions: "oneDNN 2.6.3 and Eigen 3.4.0".
std::string matrix_libraries();

/// y (rows, out) = x (rows, in) . w (out, in)^T.
template <typename T>
void linear_forward(const LinearShape& shape, const T* x, const T* w, T* y);

/// y (rows, out) += x (rows, in) . w (out, in)^T: a projection onto the residual stream.
template <typename T>
void linear_forward_add(const LinearShape& shape, const T* x, const T* w, T* y);

/// dx (rows, in) = dy (rows, out) . w (out, in).
template <typename T>
void linear_backward_input(const LinearShape& shape, const T* dy, const T* w, T* dx);

/// dw (out, in) += dy (rows, out)^T . x (rows, in).
template <typename T>
void linear_backward_weight(const LinearShape& shape, const T* dy, const T* x, T* dw);

}  // namespace rpeg::cpu
