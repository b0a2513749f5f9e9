#pragma once

#include <array>
#include <cstddef>

#include "rpeg/base/rng.h"
#include "rpeg/plan/plan.h"

namespace rpeg::search {

/// The axes of a block, widest first.
inline constexpr std::array<Range Placement::*, 3> kAxes{
    &Placement::racks, &Placement::nodes, &Placement::gpus};

inline std::size_t draw_index(std::size_t size, Rng& rng) {
  return static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(size)));
}

inline int draw_int(int first, int last, Rng& rng) {
  return first + static_cast<int>(rng.below(last - first + 1));
}

}  // namespace rpeg::search
