#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rpeg/job/job.h"

namespace rpeg {

/// Bytes that one rank of the CPU runtime needs at most, everything in fp32.
struct RankMemory {
  std::int64_t weights = 0;    ///< of all copies: 1 + tau versions of a reader's
  std::int64_t sending = 0;    ///< new weights on their way to readers
  std::int64_t gradients = 0;  ///< of what it trains
  std::int64_t optimizer = 0;  ///< two moments, its share of them (ZeRO-1)
  std::int64_t messages = 0;   ///< data messages of an iteration at full length
  // Of the vertex that needs most of these three together while it runs:
  VertexId busiest{};
  std::int64_t kv_cache = 0;     ///< every sequence of the replica at full length
  std::int64_t activations = 0;  ///< of the largest micro-batch, by recompute mode
  std::int64_t logits = 0;       ///< a block of rows and its gradient

  std::int64_t total() const {
    return weights + sending + gradients + optimizer + messages + kv_cache + activations + logits;
  }
};

/// By rank. Activations per layer as in docs/cost-model.md (Memory), with 4 bytes an element.
std::vector<RankMemory> rank_memory(const Job& job);

/// "weights 1.2 GB, gradients 0.6 GB, …": the terms that are not 0, largest first.
std::string memory_text(const RankMemory& memory, const Graph& graph);

/// Throws kUsage when a rank needs more than `device_bytes`: the rank that needs most, its node,
/// the terms, and the smallest change of the plan that would help.
void check_memory(const Job& job, std::int64_t device_bytes);

}  // namespace rpeg
