#pragma once

#include <cstdint>

namespace rpeg::cpu {

/// Rows that begin with `heads` query heads and `kv_heads` key heads of `head_dim` elements.
struct HeadNormShape {
  std::int64_t rows = 0;
  std::int64_t heads = 0;       ///< a
  std::int64_t kv_heads = 0;    ///< n
  std::int64_t head_dim = 0;    ///< d
  std::int64_t row_stride = 0;  ///< elements between rows, at least (a + n) d
  double eps = 0.0;

  std::int64_t width() const { return (heads + kv_heads) * head_dim; }
};

/// Root-mean-square norm of each query and key head by itself, in place in `x` (rows, row_stride);
/// all query heads share query_weight (d), all key heads key_weight (d). For the backward pass
/// `raw` (rows, (a + n) d) receives what the heads were and inv_rms (rows, a + n) their scales;
/// both may be null when there will be none.
template <typename T>
void head_norm_forward(const HeadNormShape& shape,
                       const T* query_weight,
                       const T* key_weight,
                       T* x,
                       T* raw,
                       T* inv_rms);

/// Replaces the gradient by the normed heads in `dx` (rows, row_stride) by that of the raw ones;
/// adds to dquery_weight and dkey_weight (d).
template <typename T>
void head_norm_backward(const HeadNormShape& shape,
                        const T* query_weight,
                        const T* key_weight,
                        const T* raw,
                        const T* inv_rms,
                        T* dx,
                        T* dquery_weight,
                        T* dkey_weight);

}  // namespace rpeg::cpu
