#pragma once

#include <cstdint>
#include <span>

namespace rpeg::cpu {

/// y (T, h): row t is row tokens[t] of table (V, h).
template <typename T>
void embedding_forward(std::span<const std::int32_t> tokens,
                       std::int64_t width,
                       const T* table,
                       T* y);

/// dtable (V, h): row tokens[t] += dy (T, h) row t, in the order of the tokens.
template <typename T>
void embedding_backward(std::span<const std::int32_t> tokens,
                        std::int64_t width,
                        const T* dy,
                        T* dtable);

}  // namespace rpeg::cpu
