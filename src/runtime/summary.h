#pragma once

#include <filesystem>
#include <vector>

#include "rpeg/job/job.h"
#include "rpeg/runtime/run.h"
#include "rpeg/trace/analysis.h"
#include "runtime/metrics.h"

namespace rpeg {

/// Median of some numbers, NaN for none.
double median(std::vector<double> values);

/// The first iteration that measurements count: the second, for the first warms caches and buffers
/// up; the first when it is the only one.
inline std::size_t first_counted(const std::vector<double>& by_iteration) {
  return by_iteration.size() > 1 ? 1 : 0;
}
/// Median over the counted iterations.
double counted_median(const std::vector<double>& by_iteration);

/// What the rank reports of a run say: seconds of tasks and iterations.
TraceAnalysis analyse_reports(const Job& job, const std::vector<Report>& reports);

/// What a run measured: with runtime.trace the tasks, ranks and responses of its trace, which
/// all ranks must have closed, otherwise what the reports say. Without the trace too when not every
/// rank's file can be seen from here, or one is not complete, with a warning. Iterations always go
/// by the reports, which leave evaluation out.
TraceAnalysis measure_run(const Job& job, const std::vector<Report>& reports);

/// Fills timings and ranks of a summary: medians over the counted iterations beside the
/// predictions.
void fill_timings(const Job& job, const TraceAnalysis& measured, RunSummary& summary);

/// On rank 0, when all ranks have closed their traces: fills the summary and writes summary.yaml
/// and observed.yaml beside the metrics.
void summarise_run(const Job& job, const std::vector<Report>& reports, RunSummary& summary);

/// Text of summary.yaml.
std::string summary_text(const Job& job, const RunSummary& summary);

}  // namespace rpeg
