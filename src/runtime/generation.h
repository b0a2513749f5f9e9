#pragma once

#include <cstdint>
#include <vector>

#include "runtime/context.h"

namespace rpeg {

/// What a generation instruction did besides filling the iteration's data.
struct Generated {
  std::vector<std::int64_t> sequences;  ///< those that ended in it, in this order; leader only
  double verifier_s = 0.0;              ///< seconds that their verification took; leader only
  double evaluation_s = 0.0;            ///< seconds of an evaluation before it
};

/// g_pi and its stages: generates (or replays) the replica's sequences until those of the stage
/// have ended; the leader scores and records them. Entered by all ranks of the replica. When an
/// evaluation is due in `iteration` it runs first, on the weights that the iteration uses.
Generated generate_sequences(RankContext& context,
                             const Instruction& instruction,
                             std::int64_t iteration);

/// Whether the greedy reward on data.eval is measured before the generation of `iteration`.
bool evaluation_due(const RankContext& context, std::int64_t iteration);

/// Adds the greedy reward on data.eval under the generation's present weights to `report`. The
/// replicas share the prompts. Called on all ranks; those that do not generate add nothing.
void evaluate_into(RankContext& context, Report& report);

}  // namespace rpeg
