#pragma once

#include <string>

#include "rpeg/comm/comm.h"
#include "runtime/metrics.h"

namespace rpeg {

/// Sum of the reports of all ranks, in rank order, on every rank; the rollout lines on rank 0 only.
/// `iteration_s` becomes rank 0's.
Report gather_reports(Comm& control, Report mine);

}  // namespace rpeg
