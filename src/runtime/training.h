#pragma once

#include <cstdint>

#include "runtime/context.h"

namespace rpeg {

/// t_pi, t_V, t_piV: all epochs and mini-batches of an iteration. Entered by all ranks of the
/// vertex's block; after it all holders of a tensor have the same bits. Losses and gradients are
/// normalised by counts of the global mini-batch, so they do not depend on the layout or the number
/// of micro-batches but by rounding. Throws kRuntime on all ranks of the block, naming vertex,
/// iteration and mini-batch, when a loss or a gradient is not finite.
void train_vertex(RankContext& context, const Instruction& instruction, std::int64_t iteration);

}  // namespace rpeg
