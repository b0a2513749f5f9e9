#pragma once

#include <cstdint>

#include "runtime/context.h"

namespace rpeg {

/// g_pi: generates (or replays) the instruction's sequences, scores them with the verifier and
/// records them.
void generate_sequences(RankContext& context,
                        const Instruction& instruction,
                        std::int64_t iteration);

/// Greedy rewards of the current actor on the evaluation set.
struct Evaluation {
  double reward_sum = 0.0;
  double prompts = 0.0;
};
/// The part of replica `replica` of `replicas`, which share the prompts.
Evaluation evaluate(const RankContext& context, int replica, int replicas);

}  // namespace rpeg
