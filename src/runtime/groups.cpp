#include "runtime/groups.h"

#include <algorithm>

namespace rpeg {
namespace {

Comm* unless_alone(const std::unique_ptr<Comm>& group) {
  return group != nullptr && group->size() > 1 ? group.get() : nullptr;
}

/// Key-value heads of the models that a block holds; equal for all that share a split.
std::int64_t key_value_heads_of(const Job& job, int block) {
  for (const WeightCopy& copy : job.copies) {
    if (copy.block == block) {
      return job.inputs.model(copy.model).num_kv_heads;
    }
  }
  return 0;
}

/// The tensor-parallel ranks with the same key-value head as `place`.
std::vector<int> replica_heads(const Block& block, const BlockPlace& place, std::int64_t kv_heads) {
  const int sharing = block.parallelism.tp / static_cast<int>(kv_heads);
  const std::vector<int> all = tensor_ranks(block, place);
  const auto first = all.begin() + place.tp / sharing * sharing;
  return {first, first + sharing};
}

BlockGroups groups_of(const Job& job, int index, const BlockPlace& place, Comm& world) {
  const Block& block = job.blocks[static_cast<std::size_t>(index)];
  BlockGroups groups;
  groups.parallelism = block.parallelism;
  groups.place = place;
  groups.all = world.subgroup(block.ranks);
  groups.replica = world.subgroup(replica_ranks(block, place.dp));
  groups.tensor = world.subgroup(tensor_ranks(block, place));
  groups.pipeline = world.subgroup(pipeline_ranks(block, place));
  groups.data = world.subgroup(data_ranks(block, place));
  if (groups.is_leader()) {
    groups.leaders = world.subgroup(leader_ranks(block));
  }
  const std::int64_t kv_heads = key_value_heads_of(job, index);
  if (kv_heads > 0 && block.parallelism.tp > kv_heads) {
    groups.kv_replicas = world.subgroup(replica_heads(block, place, kv_heads));
  }
  return groups;
}

}  // namespace

ShardGroups BlockGroups::shard_groups() const {
  return {.tensor = unless_alone(tensor),
          .pipeline = unless_alone(pipeline),
          .kv_replicas = unless_alone(kv_replicas)};
}

RankGroups form_groups(const Job& job, Comm& world) {
  RankGroups groups;
  for (std::size_t i = 0; i < job.blocks.size(); ++i) {
    const auto place = place_in_block(job.blocks[i], world.rank());
    if (place.has_value()) {
      const auto index = static_cast<int>(i);
      groups.emplace(index, groups_of(job, index, *place, world));
    }
  }
  return groups;
}

}  // namespace rpeg
