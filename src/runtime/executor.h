#pragma once

#include <cstdint>

#include "rpeg/trace/trace.h"
#include "runtime/context.h"

namespace rpeg {

/// Runs this rank's program once, for `iteration`: every instruction in order, timed into the
/// iteration's report and, with a writer, traced.
void run_program(RankContext& context, std::int64_t iteration, TraceWriter* trace);

}  // namespace rpeg
