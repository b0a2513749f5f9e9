#pragma once

#include "rpeg/comm/comm.h"
#include "rpeg/trace/trace.h"

namespace rpeg {

/// Seconds since the start of the run on rank 0's clock.
class RunClock {
 public:
  /// Entered by all ranks together: rank 0 answers the others' questions for its time, and each
  /// keeps the offset of the exchange with the shortest round trip.
  explicit RunClock(Comm& comm);

  double now_s() const;

  /// The measurement that `now_s` goes by. Its `offset_s` is relative to it, 0.
  const ClockSample& start() const { return start_; }
  /// Measures again, entered by all ranks of the same group: by how much `now_s` has drifted away
  /// from rank 0's since.
  ClockSample measure(Comm& comm) const;

 private:
  double offset_s_ = 0.0;  ///< added to this machine's monotonic clock
  ClockSample start_;
};

}  // namespace rpeg
