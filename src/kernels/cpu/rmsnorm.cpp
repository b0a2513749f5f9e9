#include "rpeg/kernels/rmsnorm.h"

#include <cmath>

#include "kernels/cpu/eigen.h"

namespace rpeg::cpu {

template <typename T>
void rmsnorm_forward(const RmsNormShape& shape, const T* x, const T* weight, T* y, T* inv_rms) {
  const std::int64_t h = shape.width;
  const ConstArrayMap<T> w(weight, h);
  for (std::int64_t t = 0; t < shape.rows; ++t) {
    const ConstArrayMap<T> row(x + t * h, h);
    const T mean_square = row.square().sum() / static_cast<T>(h);
    inv_rms[t] = T(1) / std::sqrt(mean_square + static_cast<T>(shape.eps));
    ArrayMap<T>(y + t * h, h) = row * inv_rms[t] * w;
  }
}

template <typename T>
void rmsnorm_backward(const RmsNormShape& shape,
                      const T* x,
                      const T* weight,
                      const T* inv_rms,
                      const T* dy,
                      T* dx,
                      T* dweight) {
  const std::int64_t h = shape.width;
  const ConstArrayMap<T> w(weight, h);
  Eigen::Array<T, Eigen::Dynamic, 1> dw = Eigen::Array<T, Eigen::Dynamic, 1>::Zero(h);
  for (std::int64_t t = 0; t < shape.rows; ++t) {
    const ConstArrayMap<T> row(x + t * h, h);
    const ConstArrayMap<T> g(dy + t * h, h);
    // With n = x * r: dx = r * (g w - n * mean(g w n)).
    const T r = inv_rms[t];
    const T projection = (g * w * row).sum() * r * r / static_cast<T>(h);
    ArrayMap<T>(dx + t * h, h) += r * (g * w - row * projection);
    dw += g * row * r;
  }
  ArrayMap<T>(dweight, h) += dw;
}

template void rmsnorm_forward(const RmsNormShape&, const float*, const float*, float*, float*);
template void rmsnorm_forward(const RmsNormShape&, const double*, const double*, double*, double*);
template void rmsnorm_backward(
    const RmsNormShape&, const float*, const float*, const float*, const float*, float*, float*);
template void rmsnorm_backward(const RmsNormShape&,
                               const double*,
                               const double*,
                               const double*,
                               const double*,
                               double*,
                               double*);

}  // namespace rpeg::cpu
