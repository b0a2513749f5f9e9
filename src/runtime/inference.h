#pragma once

#include <cstdint>

#include "runtime/context.h"

namespace rpeg {

/// i_ref, i_pi: log-probabilities of the response tokens; i_V: the value of the state in which each
/// was drawn. Micro-batch by micro-batch, as planned.
void infer_sequences(RankContext& context, const Instruction& instruction, std::int64_t iteration);

}  // namespace rpeg
