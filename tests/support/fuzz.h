#pragma once

#include <cstdlib>
#include <string>

#include "rpeg/base/rng.h"

namespace rpeg::test {

/// Inputs of a fuzz test: RPEG_FUZZ, by default a few hundred, fewer under a sanitizer.
inline int fuzz_count() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kDefault = 60;
#else
  constexpr int kDefault = 300;
#endif
  const char* wanted = std::getenv("RPEG_FUZZ");
  return wanted != nullptr ? std::atoi(wanted) : kDefault;
}

/// Changes a few places of a text: digits, keys, lines.
inline std::string mutated(std::string text, Rng& rng) {
  static const std::string kSigns = "0123456789-.[]:{}#e \n\tabz&*\"";
  const std::int64_t changes = 1 + rng.below(4);
  for (std::int64_t i = 0; i < changes && !text.empty(); ++i) {
    const auto at = static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(text.size())));
    const auto sign =
        kSigns[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(kSigns.size())))];
    // Half of the changes hit a number: those that stay valid are the interesting ones.
    const std::size_t digit = text.find_first_of("0123456789", at);
    switch (rng.below(6)) {
      case 0:
        text[at] = sign;
        break;
      case 1:
        text.erase(at, 1 + static_cast<std::size_t>(rng.below(8)));
        break;
      case 2:
        text.insert(at, 1, sign);
        break;
      default:
        if (digit == std::string::npos) break;
        if (rng.below(4) == 0) {
          text.insert(digit, 1, static_cast<char>('1' + rng.below(9)));
        } else {
          text[digit] = static_cast<char>('0' + rng.below(10));
        }
        break;
    }
  }
  return text;
}

}  // namespace rpeg::test
