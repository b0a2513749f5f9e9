#pragma once

#include <cstdint>

#include "runtime/context.h"

namespace rpeg {

/// i_ref, i_pi: log-probabilities of the response tokens; i_V: the value of the state in which each
/// was drawn; i_R: the scalar head at the last token of prompt and response, the sequence's score.
/// In micro-batches, as planned, through the stages of a pipeline. Entered by all ranks of the
/// vertex's replica; its leader has the rollouts and gets the results.
void infer_sequences(RankContext& context, const Instruction& instruction, std::int64_t iteration);

}  // namespace rpeg
