#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/context.h"

namespace rpeg {

/// Gives the other ranks of a replica what its leader knows about some sequences of an iteration:
/// the list itself (read on the leader only) and, of each sequence, `payloads`. Returns the list.
/// Entered by all ranks of the vertex's replica.
std::vector<std::int64_t> share_sequences(RankContext& context,
                                          VertexId vertex,
                                          std::int64_t iteration,
                                          const std::vector<std::int64_t>& sequences,
                                          std::span<const Payload> payloads);

}  // namespace rpeg
