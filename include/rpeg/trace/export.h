#pragma once

#include <string>

#include "rpeg/job/job.h"
#include "rpeg/trace/trace.h"

namespace rpeg {

/// The trace as Trace Event JSON, which ui.perfetto.dev and chrome://tracing open: a process for
/// each node, a thread for each rank, a slice for each instruction and for each wait, an arrow for
/// each message, and for each rank and model a counter of the weight version in use.
std::string perfetto_json(const Job& job, const Trace& trace);

}  // namespace rpeg
