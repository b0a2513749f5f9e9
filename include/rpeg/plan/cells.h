#pragma once

#include <cstdint>
#include <vector>

#include "rpeg/plan/plan.h"

namespace rpeg {

/// A box of GPUs that each of several placements covers wholly or not at all.
struct PlacementCell {
  Placement box;
  std::uint32_t users = 0;  ///< bit i: placement i covers the box; never 0
};

/// Cuts the GPUs that any of `placements` (at most 32) uses into disjoint boxes, in ascending
/// order. The work depends on the number of placements, not on the number of GPUs.
std::vector<PlacementCell> cut_into_cells(const std::vector<Placement>& placements);

/// GPUs that at least one vertex of the plan uses.
std::int64_t active_gpu_count(const Plan& plan);

}  // namespace rpeg
