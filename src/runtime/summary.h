#pragma once

#include <filesystem>
#include <vector>

#include "rpeg/job/job.h"
#include "rpeg/runtime/run.h"
#include "runtime/metrics.h"

namespace rpeg {

/// Median of some numbers, NaN for none.
double median(std::vector<double> values);

/// Fills the timings of a summary from the iterations' reports: medians over all iterations but the
/// first, which warms caches and buffers up (over the first too when it is the only one).
void fill_timings(const Job& job, const std::vector<Report>& reports, RunSummary& summary);

/// Text of summary.yaml.
std::string summary_text(const Job& job, const RunSummary& summary);

}  // namespace rpeg
