#pragma once

#include <string>

#include "rpeg/profile/hardware_profile.h"
#include "rpeg/sim/simulator.h"
#include "rpeg/spec/workload_config.h"

namespace rpeg {

/// A period that no plan of the search space can beat, and why.
struct SpaceBound {
  double period_s = 0.0;
  std::string reason;  ///< what binds, in one sentence: "GPU time of all vertices over 32 GPUs", …
};

/// Lower bound over all structures, sub-plans and blocks that the search may take, from the same
/// durations as the simulator uses (docs/search.md, Bounds).
SpaceBound space_bound(const WorkloadConfig& config, const HardwareProfile& profile);

/// Lower bound for one plan: the larger of the work of the busiest atom and the maximum cycle ratio
/// of the dependencies alone.
double plan_bound_s(const TaskGraph& tasks);

}  // namespace rpeg
