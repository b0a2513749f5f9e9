#include "rpeg/kernels/add.h"

#include "kernels/cpu/eigen.h"

namespace rpeg::cpu {

template <typename T>
void add(std::int64_t count, const T* x, T* y) {
  ArrayMap<T>(y, count) += ConstArrayMap<T>(x, count);
}

template <typename T>
void add_bias(std::int64_t rows, std::int64_t width, const T* bias, T* y) {
  for (std::int64_t t = 0; t < rows; ++t) {
    add(width, bias, y + t * width);
  }
}

template <typename T>
void add_bias_backward(std::int64_t rows, std::int64_t width, const T* dy, T* dbias) {
  for (std::int64_t t = 0; t < rows; ++t) {
    add(width, dy + t * width, dbias);
  }
}

template <typename T>
void add_scaled_rows(std::int64_t rows, std::int64_t width, const T* scale, const T* x, T* y) {
  const ConstArrayMap<T> values(x, width);
  for (std::int64_t t = 0; t < rows; ++t) {
    ArrayMap<T>(y + t * width, width) += scale[t] * values;
  }
}

template void add(std::int64_t, const float*, float*);
template void add(std::int64_t, const double*, double*);
template void add_bias(std::int64_t, std::int64_t, const float*, float*);
template void add_bias(std::int64_t, std::int64_t, const double*, double*);
template void add_bias_backward(std::int64_t, std::int64_t, const float*, float*);
template void add_bias_backward(std::int64_t, std::int64_t, const double*, double*);
template void add_scaled_rows(std::int64_t, std::int64_t, const float*, const float*, float*);
template void add_scaled_rows(std::int64_t, std::int64_t, const double*, const double*, double*);

}  // namespace rpeg::cpu
