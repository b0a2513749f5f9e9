#pragma once

#include <vector>

#include "rpeg/cost/cost_model.h"
#include "rpeg/plan/cells.h"

// Bytes on every GPU of a plan.

namespace rpeg {

/// Memory of a plan: the fields of PricedPlan of the same names.
struct PlanMemory {
  std::vector<MemoryUse> vertices;
  double peak_bytes = 0.0;
  double limit_bytes = 0.0;
  double overflow = 0.0;
  std::string overflow_text;
};

/// `cells` are those of the plan's placements.
PlanMemory plan_memory(const Plan& plan,
                       const Graph& graph,
                       const WorkloadConfig& config,
                       const HardwareProfile& profile,
                       const std::vector<PlacementCell>& cells);

/// Same parallelism on the same GPUs: no weights need to move.
inline bool same_layout(const VertexPlan& a, const VertexPlan& b) {
  return a.parallelism == b.parallelism && a.placement == b.placement;
}

}  // namespace rpeg
