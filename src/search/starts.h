#pragma once

#include <optional>
#include <vector>

#include "search/chain.h"

namespace rpeg::search {

/// Where chains begin: a given plan first, then greedy and concurrent; all in the space of the
/// bench, pins kept. A decision of the given plan that the pins exclude gives way. Throws kUsage
/// when the given plan does not suit the job, kInfeasible when a pin leaves no valid plan.
std::vector<Plan> start_plans(Workbench& bench, const std::optional<Plan>& given);

}  // namespace rpeg::search
