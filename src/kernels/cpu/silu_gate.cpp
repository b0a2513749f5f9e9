#include "rpeg/kernels/silu_gate.h"

#include "kernels/cpu/eigen.h"

namespace rpeg::cpu {

template <typename T>
void silu_gate_forward(std::int64_t rows, std::int64_t width, const T* gate_up, T* y) {
  for (std::int64_t t = 0; t < rows; ++t) {
    const ConstArrayMap<T> gate(gate_up + t * 2 * width, width);
    const ConstArrayMap<T> up(gate_up + t * 2 * width + width, width);
    ArrayMap<T>(y + t * width, width) = gate * up / (T(1) + (-gate).exp());
  }
}

template <typename T>
void silu_gate_backward(
    std::int64_t rows, std::int64_t width, const T* gate_up, const T* dy, T* dgate_up) {
  for (std::int64_t t = 0; t < rows; ++t) {
    const ConstArrayMap<T> gate(gate_up + t * 2 * width, width);
    const ConstArrayMap<T> up(gate_up + t * 2 * width + width, width);
    const ConstArrayMap<T> g(dy + t * width, width);
    ArrayMap<T> dgate(dgate_up + t * 2 * width, width);
    ArrayMap<T> dup(dgate_up + t * 2 * width + width, width);
    // silu' = s (1 + x (1 - s)) with the sigmoid s, which waits in dup.
    dup = (T(1) + (-gate).exp()).inverse();
    dgate = g * up * dup * (T(1) + gate * (T(1) - dup));
    dup *= g * gate;
  }
}

template void silu_gate_forward(std::int64_t, std::int64_t, const float*, float*);
template void silu_gate_forward(std::int64_t, std::int64_t, const double*, double*);
template void silu_gate_backward(std::int64_t, std::int64_t, const float*, const float*, float*);
template void silu_gate_backward(std::int64_t, std::int64_t, const double*, const double*, double*);

}  // namespace rpeg::cpu
