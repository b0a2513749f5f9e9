#pragma once

#include <string>
#include <vector>

#include "rpeg/search/evaluation.h"

namespace rpeg {

/// One decision in which two plans differ, and what it is worth.
struct Difference {
  std::string what;       ///< "g_pi split (4,1,2) -> (8,1,1)"
  double effect_s = 0.0;  ///< period of the first plan with this decision swapped, minus its own
  bool fits = true;       ///< the swapped plan fits into memory
  bool valid = true;      ///< the swapped plan is structurally valid; else effect_s is 0
};

/// Swaps one decision at a time (structure, and for each vertex its block with split, its split,
/// its micro-batches) from `plan` to that of `other` and evaluates; largest effect first, then what
/// does not fit, then what cannot be swapped alone. A split that the micro-batches of `plan` do not
/// suit takes along those of `other`, and says so. A vertex that only one of the plans has (t_piV)
/// belongs to the decision to share.
std::vector<Difference> compare_plans(const Plan& plan,
                                      const Plan& other,
                                      const WorkloadConfig& config,
                                      const HardwareProfile& profile);

/// The decisions alone, in the order structure, vertices; nothing is evaluated. Empty: equal plans.
std::vector<std::string> plan_differences(const Plan& plan,
                                          const Plan& other,
                                          const WorkloadConfig& config);

/// The smallest change that makes a plan fit. Tried in this order, the first kind that has a change
/// which ends the overflow: micro-batches of a vertex, its split, the structure, its block (with
/// split and micro-batches). Within a kind the one with the shortest period. When none ends it: the
/// change that leaves the least overflow.
struct Relief {
  std::string change;  ///< "t_pi: micro_batches 4 -> 8"; "" when no single change helps
  Plan plan;
  double overflow = 0.0;  ///< that is left
  double period_s = 0.0;
};
Relief smallest_relief(const Plan& plan,
                       const WorkloadConfig& config,
                       const HardwareProfile& profile);

/// The published style that a plan resembles most and what it does differently, with the effect of
/// each difference, as one paragraph. The styles are those of named_plan; the resemblance counts
/// pairs of vertices with the same relation of their blocks (equal, overlapping, apart), equal tau,
/// sharing and cuts, and close splits.
std::string resemblance(const Evaluation& evaluation,
                        const WorkloadConfig& config,
                        const HardwareProfile& profile);

}  // namespace rpeg
