#pragma once

#include <cstdint>

#include "runtime/context.h"

namespace rpeg {

/// Whether the greedy reward on data.eval is measured before the generation of `iteration`.
bool evaluation_due(const RankContext& context, std::int64_t iteration);

/// Adds the greedy reward on data.eval under the generation's present weights to `report`. The
/// replicas share the prompts. Called on all ranks; those that do not generate add nothing.
void evaluate_into(RankContext& context, Report& report);

}  // namespace rpeg
