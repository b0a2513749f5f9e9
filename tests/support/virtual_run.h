#pragma once

#include <cstdint>

#include "rpeg/job/job.h"
#include "rpeg/trace/trace.h"

namespace rpeg {

struct VirtualRun {
  std::int64_t iterations = 4;
  std::uint64_t seed = 1;       ///< of durations, response lengths and clock errors
  double clock_error_s = 2e-5;  ///< each rank's clock is off by up to this
  double longest_compute_s = 0.05;
};

/// The trace that a run of a compiled job would leave, in virtual time: every rank walks its
/// program, period by period, sends never wait, receives wait for their message, and the ranks of a
/// computation wait for each other. Versions of weights are those that training and messages bring
/// about. After the last iteration the weights still under way are received. Fails a check when the
/// programs deadlock.
Trace virtual_run(const Job& job, const VirtualRun& options);

}  // namespace rpeg
