#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rpeg/base/error.h"

namespace rpeg {

/// Log-ratios are clamped to ±20 before they are exponentiated.
inline constexpr double kMaxLogRatio = 20.0;

inline double clamp_log_ratio(double log_ratio) {
  return std::clamp(log_ratio, -kMaxLogRatio, kMaxLogRatio);
}

/// Entries [begin, end) of a packed per-token array.
struct PackedRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

inline PackedRange packed_range(std::span<const std::int64_t> starts, std::size_t sequence) {
  return {static_cast<std::size_t>(starts[sequence]),
          static_cast<std::size_t>(starts[sequence + 1])};
}

/// Checks that `starts` (B+1) partitions `tokens` entries; returns B.
inline std::size_t check_packed(std::span<const std::int64_t> starts, std::size_t tokens) {
  check(!starts.empty() && starts.front() == 0 && std::is_sorted(starts.begin(), starts.end()) &&
            static_cast<std::size_t>(starts.back()) == tokens,
        "starts of packed sequences must rise from 0 to the number of tokens");
  return starts.size() - 1;
}

}  // namespace rpeg
