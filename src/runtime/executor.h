#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rpeg/trace/trace.h"
#include "runtime/context.h"

namespace rpeg {

/// Runs this rank's program once, for `iteration`: every instruction in order, timed into the
/// iteration's report and, with a writer, traced.
void run_program(RankContext& context, std::int64_t iteration, TraceWriter* trace);

/// Names of the tasks that instructions are timed under, in the order of `Report::task_s`:
/// vertices, then weight transfers ("t_pi->g_pi").
std::vector<std::string> task_names(const Job& job);

}  // namespace rpeg
