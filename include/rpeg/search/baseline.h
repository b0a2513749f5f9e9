#pragma once

#include "rpeg/plan/plan.h"
#include "rpeg/profile/hardware_profile.h"
#include "rpeg/spec/workload_config.h"

namespace rpeg {

/// Every vertex on all GPUs (on the largest block that it can use), one after the other, each with
/// its own fastest (dp, pp, tp, micro-batches) that fits; τ = 0. Where the vertices overflow memory
/// jointly, the change with the least added time per byte freed is made until they fit. The plan
/// may still overflow: its evaluation says so.
Plan greedy_plan(const WorkloadConfig& config, const HardwareProfile& profile);

/// A pool for each model, side by side: actor, critic, reward and reference get whole nodes (GPUs
/// when there are fewer nodes than models) in proportion to their FLOPs by largest remainder, at
/// least one; with fewer GPUs than models the last models share. τ = 0. Memory as in greedy_plan.
Plan concurrent_plan(const WorkloadConfig& config, const HardwareProfile& profile);

}  // namespace rpeg
