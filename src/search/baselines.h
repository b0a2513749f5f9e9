#pragma once

#include "rpeg/plan/plan.h"
#include "search/evaluator.h"
#include "search/sub_plans.h"

namespace rpeg::search {

/// greedy_plan and concurrent_plan in the space of a table: they keep its pins and have a structure
/// that it has. Throws kInfeasible when a pin leaves a vertex no valid split.
Plan greedy(SubPlanTable& table, Evaluator& evaluator);
Plan concurrent(SubPlanTable& table, Evaluator& evaluator);

/// The fastest sub-plan of a vertex on the largest block of a region that it can use; on the whole
/// cluster when a pin keeps it out of the region.
VertexPlan fastest_on(SubPlanTable& table, std::size_t kind, const Placement& region);

/// While a plan overflows memory: the change of one vertex's split (same block) with the least
/// added time per byte freed. The plan that comes back may still overflow.
Plan relieve_memory(SubPlanTable& table, Evaluator& evaluator, Plan plan);

/// A plan of the first structure of the space without decisions yet: one vertex plan per vertex.
Plan empty_plan(const Space& space);

}  // namespace rpeg::search
