#pragma once

#include <string>

#include "rpeg/plan/plan.h"

namespace rpeg {

/// Decisions as reports and messages print them; placement_text of plan.h prints a whole block.

std::string range_text(const Range& range);        ///< "[0-3]"
std::string split_text(const Parallelism& split);  ///< "(4,1,2)"
/// The shares of finished responses at which generation is cut: "[0.5, 0.85]".
std::string cuts_text(const Structure& structure, const WorkloadSpec& workload);

}  // namespace rpeg
