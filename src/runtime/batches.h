#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rpeg/model/transformer.h"
#include "runtime/context.h"

namespace rpeg {

/// Some sequences, prompt and response, packed for a forward pass.
struct PackedSequences {
  PackedBatch batch;
  std::vector<std::int64_t> first;      ///< (B) position in `batch` of the first response token
  std::vector<std::int64_t> starts{0};  ///< (B+1) of per-response-token arrays
  std::int64_t response_tokens() const { return starts.back(); }
};

/// Where the number that belongs to a response token stands in a per-token array of a forward pass.
enum class Anchor {
  kToken,       ///< at the token itself: its log-probability and entropy
  kPredecessor  ///< at the token before: the value of the state that it was drawn in
};

PackedSequences pack_sequences(const RankContext& context,
                               const IterationData& data,
                               std::span<const std::int64_t> sequences);

/// Numbers of the response tokens (R) out of a per-token array (T), and back (0 elsewhere).
std::vector<double> gather_response(const PackedSequences& packed,
                                    std::span<const float> per_token,
                                    Anchor anchor);
std::vector<float> scatter_response(const PackedSequences& packed,
                                    std::span<const double> per_response_token,
                                    Anchor anchor);

/// Prompt and response tokens of a sequence.
std::int64_t sequence_tokens(const RankContext& context,
                             const IterationData& data,
                             std::int64_t sequence);

/// Deals units of `tokens` tokens each to micro-batches of nearly equal token counts: longest unit
/// first (Graham, "Bounds on multiprocessing timing anomalies", 1969), each to the micro-batch with
/// the fewest tokens so far; ties go to the lower index. Returns the units of each micro-batch,
/// ascending: `parts` micro-batches, or as many as there are units, none of them empty.
std::vector<std::vector<std::size_t>> balance_units(std::span<const std::int64_t> tokens,
                                                    std::int64_t parts);

/// Micro-batches of single sequences, balanced by their tokens.
std::vector<std::vector<std::int64_t>> micro_batches(const RankContext& context,
                                                     const IterationData& data,
                                                     std::span<const std::int64_t> sequences,
                                                     std::int64_t parts);

/// All micro-batches, packed.
std::vector<PackedSequences> pack_micro_batches(
    const RankContext& context,
    const IterationData& data,
    std::span<const std::vector<std::int64_t>> micro_batches);

/// The batches of some packed micro-batches, as pipelines take them.
std::vector<const PackedBatch*> batches_of(std::span<const PackedSequences> packed);

}  // namespace rpeg
