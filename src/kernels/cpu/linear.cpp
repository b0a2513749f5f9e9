#include "rpeg/kernels/linear.h"

#include "kernels/cpu/eigen.h"

namespace rpeg::cpu {

template <typename T>
void linear_forward(const LinearShape& shape, const T* x, const T* w, T* y) {
  MatrixMap<T>(y, shape.rows, shape.out).noalias() =
      ConstMatrixMap<T>(x, shape.rows, shape.in) *
      ConstMatrixMap<T>(w, shape.out, shape.in).transpose();
}

template <typename T>
void linear_forward_add(const LinearShape& shape, const T* x, const T* w, T* y) {
  MatrixMap<T>(y, shape.rows, shape.out).noalias() +=
      ConstMatrixMap<T>(x, shape.rows, shape.in) *
      ConstMatrixMap<T>(w, shape.out, shape.in).transpose();
}

template <typename T>
void linear_backward_input(const LinearShape& shape, const T* dy, const T* w, T* dx) {
  MatrixMap<T>(dx, shape.rows, shape.in).noalias() =
      ConstMatrixMap<T>(dy, shape.rows, shape.out) * ConstMatrixMap<T>(w, shape.out, shape.in);
}

template <typename T>
void linear_backward_weight(const LinearShape& shape, const T* dy, const T* x, T* dw) {
  MatrixMap<T>(dw, shape.out, shape.in).noalias() +=
      ConstMatrixMap<T>(dy, shape.rows, shape.out).transpose() *
      ConstMatrixMap<T>(x, shape.rows, shape.in);
}

template void linear_forward(const LinearShape&, const float*, const float*, float*);
template void linear_forward(const LinearShape&, const double*, const double*, double*);
template void linear_forward_add(const LinearShape&, const float*, const float*, float*);
template void linear_forward_add(const LinearShape&, const double*, const double*, double*);
template void linear_backward_input(const LinearShape&, const float*, const float*, float*);
template void linear_backward_input(const LinearShape&, const double*, const double*, double*);
template void linear_backward_weight(const LinearShape&, const float*, const float*, float*);
template void linear_backward_weight(const LinearShape&, const double*, const double*, double*);

}  // namespace rpeg::cpu
