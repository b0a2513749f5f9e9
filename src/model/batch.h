#pragma once

#include <cstdint>
#include <vector>

#include "rpeg/model/transformer.h"

namespace rpeg {

/// Tokens of the longest sequence of a batch.
std::int64_t longest_sequence(const PackedBatch& batch);

/// The place of each token in its sequence, (T).
std::vector<std::int32_t> packed_positions(const PackedBatch& batch);

/// Throws kInternal for a batch that the model cannot take: tokens outside the vocabulary, or a
/// sequence longer than its positions. Both were checked when read.
void check_batch(const ModelSpec& spec, const PackedBatch& batch);

/// Throws kInternal when the tensor-parallel group is not that of the model's shard.
void check_groups(const ModelShard& shard, const ShardGroups& groups);

}  // namespace rpeg
