#include "model/batch.h"

#include <algorithm>

#include "rpeg/base/error.h"

namespace rpeg {

std::int64_t longest_sequence(const PackedBatch& batch) {
  std::int64_t length = 0;
  for (std::size_t i = 1; i < batch.starts.size(); ++i) {
    length = std::max(length, batch.starts[i] - batch.starts[i - 1]);
  }
  return length;
}

std::vector<std::int32_t> packed_positions(const PackedBatch& batch) {
  std::vector<std::int32_t> positions;
  positions.reserve(batch.tokens.size());
  for (std::size_t i = 1; i < batch.starts.size(); ++i) {
    for (std::int64_t t = batch.starts[i - 1]; t < batch.starts[i]; ++t) {
      positions.push_back(static_cast<std::int32_t>(t - batch.starts[i - 1]));
    }
  }
  return positions;
}

void check_batch(const ModelSpec& spec, const PackedBatch& batch) {
  check(batch.starts.front() == 0 && batch.starts.back() == batch.token_count(),
        "a packed batch starts at 0 and ends with its tokens");
  check(longest_sequence(batch) <= spec.max_positions,
        "a sequence is longer than the model's positions");
  check(std::all_of(batch.tokens.begin(),
                    batch.tokens.end(),
                    [&](std::int32_t token) { return token >= 0 && token < spec.vocab_size; }),
        "a token is outside the model's vocabulary");
}

void check_groups(const ModelShard& shard, const ShardGroups& groups) {
  check(shard.tp == 1 || (groups.tensor != nullptr && groups.tensor->size() == shard.tp &&
                          groups.tensor->rank() == shard.tp_rank),
        "the tensor-parallel group does not fit the model's shard");
}

}  // namespace rpeg
