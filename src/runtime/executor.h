#pragma once

#include <cstdint>

#include "rpeg/trace/trace.h"
#include "runtime/context.h"
#include "runtime/control.h"

namespace rpeg {

/// Repeats this rank's program: in period p an instruction with shift s runs for iteration p − s.
/// An iteration's data exists from its first instruction on this rank to its last, so several are
/// in flight when shifts differ. Before an iteration begins `control` is asked whether it runs; at
/// its end the report goes there. Every instruction is timed into the report and, with a writer,
/// traced. Returns how many iterations ran.
std::int64_t run_program(RankContext& context,
                         RunControl& control,
                         std::int64_t planned,
                         TraceWriter* trace);

/// After `iterations` iterations: receives the weights that are still on their way (for iterations
/// n … n + delta − 1, which do not run), so that every copy has the version of the last update.
void drain_weights(RankContext& context, std::int64_t iterations, TraceWriter* trace);

/// Time limit (s) of a wait; the longest iteration so far took `longest_iteration_s`, ranks may run
/// `lead` iterations ahead, and a reward command may take its own `timeout` for every batch.
double wait_limit_s(const Job& job, double longest_iteration_s, std::int64_t lead);

/// What the plan has no prediction for, evaluating and saving, may take so many times longer.
inline constexpr double kUnpricedTimes = 10.0;

}  // namespace rpeg
