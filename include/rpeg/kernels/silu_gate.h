#pragma once

#include <cstdint>

namespace rpeg::cpu {

/// y = silu(gate) * up, silu(x) = x / (1 + exp(-x)) (Shazeer, "GLU variants improve transformer",
/// 2020). gate_up (rows, 2 f): a row holds the gate, then up; y (rows, f).
template <typename T>
void silu_gate_forward(std::int64_t rows, std::int64_t width, const T* gate_up, T* y);

/// dgate_up (rows, 2 f) = the gradient, from dy (rows, f).
template <typename T>
void silu_gate_backward(
    std::int64_t rows, std::int64_t width, const T* gate_up, const T* dy, T* dgate_up);

}  // namespace rpeg::cpu
