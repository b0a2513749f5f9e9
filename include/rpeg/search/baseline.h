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

/// Baselines by name: "greedy", "concurrent", "colocated-uniform" (one (dp, pp, tp) for all
/// vertices on all GPUs, the fastest that fits: DeepSpeed-Chat style), "split-async" (a generation
/// pool and a training pool side by side with τ = 1, the best division: AReaL and StreamRL style),
/// "real-heuristic" (tp = a node, pp = nodes, dp = 1 for all vertices: the heuristic of the ReaL
/// paper). Throws kUsage for an unknown name, kInfeasible where the cluster cannot hold the style.
Plan named_plan(const std::string& name,
                const WorkloadConfig& config,
                const HardwareProfile& profile);
const std::vector<std::string>& plan_names();

}  // namespace rpeg
