#pragma once

#include <cstdint>
#include <string>
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

/// How the job samples in an iteration.
SamplingOptions sampling_options(const RankContext& context, std::int64_t iteration);

/// Text of a response, without the stop token that ended it.
std::string response_text(const RankContext& context, const GenerationResult& result);

}  // namespace rpeg
