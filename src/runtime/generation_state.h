#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rpeg/model/generate.h"

namespace rpeg {

/// Generation of one iteration on one rank, from its first stage to its last.
struct GenerationState {
  std::vector<std::int64_t> sequences;       ///< of the replica; requests of the session
  std::optional<GenerationSession> session;  ///< none when rollouts are replayed
  std::vector<std::int64_t> ending_order;    ///< replay: the sequences as they ended
  std::int64_t ended = 0;                    ///< in the stages so far
};

}  // namespace rpeg
