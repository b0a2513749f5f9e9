#pragma once

#include "rpeg/comm/comm.h"

namespace rpeg {

/// Seconds since the start of the run on rank 0's clock.
class RunClock {
 public:
  /// Entered by all ranks together: rank 0 answers the others' questions for its time, and each
  /// keeps the offset of the exchange with the shortest round trip.
  explicit RunClock(Comm& comm);

  double now_s() const;

 private:
  double offset_s_ = 0.0;  ///< added to this machine's monotonic clock
};

}  // namespace rpeg
