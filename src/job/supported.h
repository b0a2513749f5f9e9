#pragma once

#include "rpeg/plan/plan_file.h"

namespace rpeg {

/// Throws kUsage naming every feature of the plan that this version cannot run, each with what to
/// set instead.
void check_supported(const PlanFile& plan);

}  // namespace rpeg
