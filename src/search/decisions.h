#pragma once

#include <string>
#include <vector>

#include "rpeg/plan/plan.h"

namespace rpeg::search {

/// A decision of one plan, replaced by that of another.
struct Swap {
  std::string what;
  Plan plan;
  bool valid = true;
};

/// Every decision in which `other` differs from `plan`, each swapped alone; the structure first.
std::vector<Swap> swap_decisions(const Plan& plan, const Plan& other, const WorkloadConfig& config);

/// Whether a plan breaks no structural rule.
bool is_valid(const Plan& plan, const WorkloadConfig& config);

/// `plan` with another structure: vertices that it lacks come from `other`.
Plan with_structure(const Plan& plan,
                    const Structure& structure,
                    const Plan& other,
                    const WorkloadConfig& config);

}  // namespace rpeg::search
