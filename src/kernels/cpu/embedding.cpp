#include "rpeg/kernels/embedding.h"

#include <algorithm>

#include "kernels/cpu/eigen.h"

namespace rpeg::cpu {

template <typename T>
void embedding_forward(const EmbeddingShape& shape,
                       std::span<const std::int32_t> tokens,
                       const T* table,
                       T* y) {
  for (const std::int32_t token : tokens) {
    const std::int64_t row = token - shape.first;
    if (row >= 0 && row < shape.rows) {
      std::copy_n(table + row * shape.width, shape.width, y);
    } else {
      std::fill_n(y, shape.width, T(0));
    }
    y += shape.width;
  }
}

template <typename T>
void embedding_backward(const EmbeddingShape& shape,
                        std::span<const std::int32_t> tokens,
                        const T* dy,
                        T* dtable) {
  for (const std::int32_t token : tokens) {
    const std::int64_t row = token - shape.first;
    if (row >= 0 && row < shape.rows) {
      ArrayMap<T>(dtable + row * shape.width, shape.width) += ConstArrayMap<T>(dy, shape.width);
    }
    dy += shape.width;
  }
}

template void embedding_forward(const EmbeddingShape&,
                                std::span<const std::int32_t>,
                                const float*,
                                float*);
template void embedding_forward(const EmbeddingShape&,
                                std::span<const std::int32_t>,
                                const double*,
                                double*);
template void embedding_backward(const EmbeddingShape&,
                                 std::span<const std::int32_t>,
                                 const float*,
                                 float*);
template void embedding_backward(const EmbeddingShape&,
                                 std::span<const std::int32_t>,
                                 const double*,
                                 double*);

}  // namespace rpeg::cpu
