#pragma once

#include <cstdint>

#include "runtime/context.h"

namespace rpeg {

/// Data of an iteration before its first instruction on this rank: which prompts it has, a pure
/// function of seed and iteration, and in offline DPO the given responses of the sequences that
/// this rank handles. Counts what is given into the iteration's report.
IterationData begin_iteration(RankContext& context, std::int64_t iteration);

}  // namespace rpeg
