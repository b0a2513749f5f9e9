#pragma once

#include <cstdint>
#include <span>

namespace rpeg::cpu {

/// Replaces each row of `logits` (rows, V) by (logits - maxima) / temperature, whose order is that
/// of the logits, and writes the sum of its exponentials to sum_exp (rows). V may be one rank's
/// part of the vocabulary; maxima (rows) are of the whole.
template <typename T>
void relative_logits(std::int64_t rows,
                     std::int64_t vocabulary,
                     double temperature,
                     const T* maxima,
                     T* logits,
                     T* sum_exp);

/// noise[i] = -log(-log((words[i] + 0.5) / 2^32)): Gumbel(0, 1) from uniform 32-bit words.
void gumbel_from_words(std::span<const std::uint32_t> words, double* noise);

}  // namespace rpeg::cpu
