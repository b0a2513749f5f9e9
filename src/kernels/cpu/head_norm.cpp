#include "rpeg/kernels/head_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/eigen.h"

namespace rpeg::cpu {

template <typename T>
void head_norm_forward(const HeadNormShape& shape,
                       const T* query_weight,
                       const T* key_weight,
                       T* x,
                       T* raw,
                       T* inv_rms) {
  const std::int64_t d = shape.head_dim;
  const std::int64_t heads = shape.heads + shape.kv_heads;
  for (std::int64_t t = 0; t < shape.rows; ++t) {
    T* row = x + t * shape.row_stride;
    if (raw != nullptr) {
      std::copy_n(row, shape.width(), raw + t * shape.width());
    }
    for (std::int64_t head = 0; head < heads; ++head) {
      ArrayMap<T> values(row + head * d, d);
      const ConstArrayMap<T> weight(head < shape.heads ? query_weight : key_weight, d);
      const T mean_square = values.square().sum() / static_cast<T>(d);
      const T scale = T(1) / std::sqrt(mean_square + static_cast<T>(shape.eps));
      values = values * scale * weight;
      if (inv_rms != nullptr) {
        inv_rms[t * heads + head] = scale;
      }
    }
  }
}

template <typename T>
void head_norm_backward(const HeadNormShape& shape,
                        const T* query_weight,
                        const T* key_weight,
                        const T* raw,
                        const T* inv_rms,
                        T* dx,
                        T* dquery_weight,
                        T* dkey_weight) {
  const std::int64_t d = shape.head_dim;
  const std::int64_t heads = shape.heads + shape.kv_heads;
  for (std::int64_t t = 0; t < shape.rows; ++t) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const bool is_query = head < shape.heads;
      const ConstArrayMap<T> values(raw + t * shape.width() + head * d, d);
      const ConstArrayMap<T> weight(is_query ? query_weight : key_weight, d);
      ArrayMap<T> g(dx + t * shape.row_stride + head * d, d);
      // As in rmsnorm_backward: with n = x * r, dx = r * (g w - n * mean(g w n)).
      const T r = inv_rms[t * heads + head];
      const T projection = (g * weight * values).sum() * r * r / static_cast<T>(d);
      ArrayMap<T>(is_query ? dquery_weight : dkey_weight, d) += g * values * r;
      g = r * (g * weight - values * projection);
    }
  }
}

template void head_norm_forward(
    const HeadNormShape&, const float*, const float*, float*, float*, float*);
template void head_norm_forward(
    const HeadNormShape&, const double*, const double*, double*, double*, double*);
template void head_norm_backward(const HeadNormShape&,
                                 const float*,
                                 const float*,
                                 const float*,
                                 const float*,
                                 float*,
                                 float*,
                                 float*);
template void head_norm_backward(const HeadNormShape&,
                                 const double*,
                                 const double*,
                                 const double*,
                                 const double*,
                                 double*,
                                 double*,
                                 double*);

}  // namespace rpeg::cpu
