#include "rpeg/kernels/packed_weights.h"

#include "kernels/cpu/eigen.h"
#include "rpeg/base/error.h"

namespace rpeg::cpu {

template <typename T>
const T* PackedWeights<T>::transposed(const T* w, std::int64_t out, std::int64_t in) {
  const std::int64_t offset = w - weights_.data();
  check(offset >= 0 && offset + out * in <= static_cast<std::int64_t>(weights_.size()),
        "a packed matrix lies inside the buffer of its weights");
  Copy& copy = copies_[{offset, out, in}];
  if (copy.version != version_) {
    copy.values.resize(static_cast<std::size_t>(out * in));
    MatrixMap<T>(copy.values.data(), in, out) = ConstMatrixMap<T>(w, out, in).transpose();
    copy.version = version_;
  }
  return copy.values.data();
}

template class PackedWeights<float>;
template class PackedWeights<double>;

}  // namespace rpeg::cpu
