#pragma once

#include <cstdint>

#include "runtime/context.h"

namespace rpeg {

/// t_pi, t_V: all epochs and mini-batches of an iteration. Entered by all ranks of the vertex's
/// group; the weights after it are the same bits on each. Losses and gradients are normalised by
/// counts of the global mini-batch, so they do not depend on the number of ranks or micro-batches.
void train_vertex(RankContext& context, const Instruction& instruction, std::int64_t iteration);

}  // namespace rpeg
