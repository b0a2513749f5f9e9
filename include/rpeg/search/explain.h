#pragma once

#include <string>
#include <vector>

#include "rpeg/search/evaluation.h"

namespace rpeg {

/// One decision in which two plans differ, and what it is worth.
struct Difference {
  std::string what;       ///< "g_pi parallelism (4, 1, 2) -> (8, 1, 1)"
  double effect_s = 0.0;  ///< period of the first plan with this decision swapped, minus its own
  bool fits = true;       ///< the swapped plan fits into memory
  bool valid = true;      ///< the swapped plan is structurally valid; else effect_s is 0
};

/// Swaps one decision at a time (structure, and for each vertex its block with split, its split,
/// its micro-batches) from `plan` to that of `other` and evaluates; largest effect first.
std::vector<Difference> compare_plans(const Plan& plan,
                                      const Plan& other,
                                      const WorkloadConfig& config,
                                      const HardwareProfile& profile);

/// The smallest change that makes a plan fit: among single changes (split, micro-batches, block of
/// one vertex; structure) that end the overflow, the one with the shortest period; else the one
/// that frees most.
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
/// each difference, as one paragraph.
std::string resemblance(const Evaluation& evaluation,
                        const WorkloadConfig& config,
                        const HardwareProfile& profile);

}  // namespace rpeg
