#include "rpeg/kernels/linear.h"

#include <fmt/format.h>

#include <type_traits>

#include "kernels/cpu/eigen.h"
#include "kernels/cpu/gemm.h"

namespace rpeg::cpu {
namespace {

template <typename T>
void eigen_gemm(const Gemm& gemm, const T* a, const T* b, T* c) {
  MatrixMap<T> out(c, gemm.m, gemm.n);
  const auto product = [&](const auto& x, const auto& y) {
    if (gemm.add) {
      out.noalias() += x * y;
    } else {
      out.noalias() = x * y;
    }
  };
  if (gemm.transpose_a) {
    product(ConstMatrixMap<T>(a, gemm.k, gemm.m).transpose(), ConstMatrixMap<T>(b, gemm.k, gemm.n));
  } else if (gemm.transpose_b) {
    product(ConstMatrixMap<T>(a, gemm.m, gemm.k), ConstMatrixMap<T>(b, gemm.n, gemm.k).transpose());
  } else {
    product(ConstMatrixMap<T>(a, gemm.m, gemm.k), ConstMatrixMap<T>(b, gemm.k, gemm.n));
  }
}

template <typename T>
void multiply(const Gemm& gemm, const T* a, const T* b, T* c) {
  if constexpr (std::is_same_v<T, float>) {
    if (library_gemm(gemm, a, b, c)) {
      return;
    }
  }
  eigen_gemm(gemm, a, b, c);
}

}  // namespace

template <typename T>
void linear_forward(const LinearShape& shape, const T* x, const T* w, T* y) {
  multiply({.m = shape.rows, .n = shape.out, .k = shape.in, .transpose_b = true}, x, w, y);
}

template <typename T>
void linear_forward_add(const LinearShape& shape, const T* x, const T* w, T* y) {
  multiply(
      {.m = shape.rows, .n = shape.out, .k = shape.in, .transpose_b = true, .add = true}, x, w, y);
}

template <typename T>
void linear_backward_input(const LinearShape& shape, const T* dy, const T* w, T* dx) {
  multiply({.m = shape.rows, .n = shape.in, .k = shape.out}, dy, w, dx);
}

template <typename T>
void linear_backward_weight(const LinearShape& shape, const T* dy, const T* x, T* dw) {
  multiply({.m = shape.out, .n = shape.in, .k = shape.rows, .transpose_a = true, .add = true},
           dy,
           x,
           dw);
}

template void linear_forward(const LinearShape&, const float*, const float*, float*);
std::string matrix_libraries() {
  const std::string eigen =
      fmt::format("Eigen {}.{}.{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION);
  return library_name().empty() ? eigen : library_name() + " and " + eigen;
}

template void linear_forward(const LinearShape&, const double*, const double*, double*);
template void linear_forward_add(const LinearShape&, const float*, const float*, float*);
template void linear_forward_add(const LinearShape&, const double*, const double*, double*);
template void linear_backward_input(const LinearShape&, const float*, const float*, float*);
template void linear_backward_input(const LinearShape&, const double*, const double*, double*);
template void linear_backward_weight(const LinearShape&, const float*, const float*, float*);
template void linear_backward_weight(const LinearShape&, const double*, const double*, double*);

}  // namespace rpeg::cpu
