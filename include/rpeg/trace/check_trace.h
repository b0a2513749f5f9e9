#pragma once

#include <string>
#include <vector>

#include "rpeg/job/job.h"
#include "rpeg/trace/trace.h"

namespace rpeg {

/// Proves from the trace of a run alone that the run did what the job says (docs/trace.md lists the
/// rules). Returns every violation, those of the files first; none: the trace is right. Iterations
/// are those that the trace holds, so a run that was stopped early, or resumed, is right too.
///
/// Times of two ranks are compared with the tolerance `clock_tolerance_s`, times of one rank
/// exactly.
std::vector<TraceViolation> check_trace(const Job& job, const Trace& trace);

/// By how much the clocks of two ranks may disagree: the errors of their measurements, and the
/// rounding of the files.
double clock_tolerance_s(const RankTrace& a, const RankTrace& b);

/// Violations for people: the first 50, one a line, and how many more there are.
std::string violations_text(const std::vector<TraceViolation>& violations);

}  // namespace rpeg
