#include "rpeg/kernels/embedding.h"

#include <algorithm>

#include "kernels/cpu/eigen.h"

namespace rpeg::cpu {

template <typename T>
void embedding_forward(std::span<const std::int32_t> tokens,
                       std::int64_t width,
                       const T* table,
                       T* y) {
  for (const std::int32_t token : tokens) {
    y = std::copy_n(table + token * width, width, y);
  }
}

template <typename T>
void embedding_backward(std::span<const std::int32_t> tokens,
                        std::int64_t width,
                        const T* dy,
                        T* dtable) {
  for (const std::int32_t token : tokens) {
    ArrayMap<T>(dtable + token * width, width) += ConstArrayMap<T>(dy, width);
    dy += width;
  }
}

template void embedding_forward(std::span<const std::int32_t>, std::int64_t, const float*, float*);
template void embedding_forward(std::span<const std::int32_t>,
                                std::int64_t,
                                const double*,
                                double*);
template void embedding_backward(std::span<const std::int32_t>, std::int64_t, const float*, float*);
template void embedding_backward(std::span<const std::int32_t>,
                                 std::int64_t,
                                 const double*,
                                 double*);

}  // namespace rpeg::cpu
