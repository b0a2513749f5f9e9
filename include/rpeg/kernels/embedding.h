#pragma once

#include <cstdint>
#include <span>

namespace rpeg::cpu {

/// Rows [first, first + rows) of a vocabulary, each `width` wide. A rank of a vocabulary-parallel
/// model holds only these; tokens outside are another rank's.
struct EmbeddingShape {
  std::int64_t width = 0;  ///< h
  std::int64_t first = 0;
  std::int64_t rows = 0;
};

/// y (T, h): row t is the row of tokens[t] in table (rows, h), zero for a token outside.
template <typename T>
void embedding_forward(const EmbeddingShape& shape,
                       std::span<const std::int32_t> tokens,
                       const T* table,
                       T* y);

/// dtable (rows, h): the row of tokens[t] += dy (T, h) row t, in the order of the tokens.
template <typename T>
void embedding_backward(const EmbeddingShape& shape,
                        std::span<const std::int32_t> tokens,
                        const T* dy,
                        T* dtable);

}  // namespace rpeg::cpu
