#pragma once

/// What a trace says about speed. Pure functions over events; no prediction is needed.

#include <cstdint>
#include <string>
#include <vector>

#include "rpeg/trace/trace.h"

namespace rpeg {

/// Seconds of one task, iteration by iteration.
struct TaskTimes {
  std::string task;             ///< a vertex, or "t_pi->g_pi"
  std::vector<double> seconds;  ///< of its slowest rank, without waiting; ascending iterations
};

/// How one rank spent the time after the first iteration (after its start when it is the only one).
/// The shares add up to 1 with what is left: idle, bookkeeping and evaluation.
struct RankUse {
  std::int32_t rank = 0;
  double busy = 0.0;     ///< generating, inferring, training
  double waiting = 0.0;  ///< for messages and for the other ranks of its group
  double moving = 0.0;   ///< packing, sending and unpacking messages
};

struct TraceAnalysis {
  std::vector<TaskTimes> tasks;     ///< in order of their first start
  std::vector<double> iteration_s;  ///< from one iteration's end to the next one's, the first from
                                    ///< its start
  std::vector<RankUse> ranks;
  std::vector<std::int64_t> response_tokens;  ///< of every sequence that was generated
  double verifier_s = 0.0;                    ///< mean per response; 0: none recorded
};

/// The events of complete traces of all ranks of a run.
TraceAnalysis analyse_trace(const Trace& trace);

}  // namespace rpeg
