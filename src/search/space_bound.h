#pragma once

#include "rpeg/search/bound.h"
#include "search/sub_plans.h"

namespace rpeg::search {

/// space_bound of the plans that keep the pins of a table's space.
SpaceBound bound_of(SubPlanTable& table);

}  // namespace rpeg::search
