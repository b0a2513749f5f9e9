#pragma once

#include "rpeg/plan/plan.h"
#include "search/sub_plans.h"

namespace rpeg::search {

/// greedy_plan and concurrent_plan on a table that the search goes on to use.
Plan greedy(SubPlanTable& table);
Plan concurrent(SubPlanTable& table);

}  // namespace rpeg::search
