#pragma once

#include <string>

#include "rpeg/cost/assembly.h"

// Bytes on every GPU of a plan, as a report tells them.

namespace rpeg {

/// Terms of the fullest GPU of every vertex's block, and the text of the worst overflow.
void describe_memory(const PlanSkeleton& skeleton,
                     const Plan& plan,
                     const Assembly& assembly,
                     const HardwareProfile& profile,
                     PricedPlan* priced);

}  // namespace rpeg
