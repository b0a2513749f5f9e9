#include "rpeg/spec/model_shard.h"

#include <gtest/gtest.h>

#include <map>

#include "rpeg/base/error.h"
#include "rpeg/base/rng.h"

namespace rpeg {
namespace {

std::int64_t between(Rng& rng, std::int64_t low, std::int64_t high) {
  return low + rng.below(high - low + 1);
}

struct Degrees {
  int tp = 1;
  int pp = 1;
};

/// A small model that can be cut `degrees.tp` ways, with as many, fewer or more key-value heads.
ModelSpec random_spec(Rng& rng, const Degrees& degrees) {
  ModelSpec spec;
  spec.layers = between(rng, degrees.pp, 6);
  spec.hidden_dim = between(rng, 1, 6);
  spec.ffn_dim = degrees.tp * between(rng, 1, 4);
  spec.vocab_size = between(rng, 1, 20);
  spec.head_dim = 2 * between(rng, 1, 2);
  spec.num_kv_heads =
      rng.below(2) == 0 ? degrees.tp * between(rng, 1, 2) : degrees.tp / (degrees.tp == 1 ? 1 : 2);
  spec.num_heads = std::max<std::int64_t>(degrees.tp, spec.num_kv_heads) * between(rng, 1, 2);
  spec.tied_embeddings = rng.below(2) == 0;
  spec.qkv_bias = rng.below(2) == 0;
  spec.qk_norm = rng.below(2) == 0;
  return spec;
}

/// How many owners and holders each element of a tensor has.
struct Cover {
  std::vector<int> owners;
  std::vector<int> holders;
};

void add_part(const ShardTensor& part, Cover& cover) {
  const ShardRuns runs = shard_runs(part);
  EXPECT_EQ(runs.count * runs.length, part.count) << part.name;
  for (std::int64_t i = 0; i < runs.count; ++i) {
    for (std::int64_t j = 0; j < runs.length; ++j) {
      const auto element = static_cast<std::size_t>(runs.first + i * runs.stride + j);
      ASSERT_LT(element, cover.owners.size()) << part.name;
      cover.owners[element] += part.is_owner ? 1 : 0;
      cover.holders[element] += 1;
    }
  }
}

TEST(ModelShard, PartsOfAllRanksCoverEveryTensorWithOneOwner) {
  Rng rng(5);
  for (int round = 0; round < 300; ++round) {
    const Degrees degrees{1 << rng.below(4), static_cast<int>(between(rng, 1, 3))};
    const ModelSpec spec = random_spec(rng, degrees);
    const Head head = static_cast<Head>(rng.below(3));
    std::map<std::string, Cover> covers;
    for (const ShardTensor& tensor : shard_tensors(spec, head, whole_model(spec))) {
      EXPECT_TRUE(tensor.is_owner);
      const auto count = static_cast<std::size_t>(tensor.count);
      ASSERT_TRUE(
          covers.emplace(tensor.name, Cover{std::vector<int>(count), std::vector<int>(count)})
              .second);
    }
    for (int rank = 0; rank < degrees.tp * degrees.pp; ++rank) {
      const int stage = rank / degrees.tp;
      const ModelShard shard{.tp = degrees.tp,
                             .tp_rank = rank % degrees.tp,
                             .first_layer = spec.layers * stage / degrees.pp,
                             .last_layer = spec.layers * (stage + 1) / degrees.pp,
                             .has_embedding = stage == 0,
                             .has_head = stage + 1 == degrees.pp};
      for (const ShardTensor& part : shard_tensors(spec, head, shard)) {
        ASSERT_TRUE(covers.contains(part.name)) << part.name;
        add_part(part, covers[part.name]);
      }
    }
    for (const auto& [name, cover] : covers) {
      EXPECT_EQ(cover.owners, std::vector<int>(cover.owners.size(), 1))
          << name << " tp " << degrees.tp << " pp " << degrees.pp;
      for (const int holders : cover.holders) {
        ASSERT_GE(holders, 1) << name;
      }
    }
  }
}

TEST(ModelShard, RunsAreRowsOrStretchesOfRows) {
  const ShardTensor rows{"w", {6, 5}, 0, 2, 4, 10};
  const ShardRuns of_rows = shard_runs(rows);
  EXPECT_EQ(of_rows.count, 1);
  EXPECT_EQ(of_rows.length, 2 * 5);
  EXPECT_EQ(of_rows.first, 2 * 5);
  const ShardTensor columns{"w", {6, 5}, 1, 2, 4, 12};
  const ShardRuns of_columns = shard_runs(columns);
  EXPECT_EQ(of_columns.count, 6);
  EXPECT_EQ(of_columns.length, 2);
  EXPECT_EQ(of_columns.first, 2);
  EXPECT_EQ(of_columns.stride, 5);
}

TEST(ModelShard, RefusesWhatCannotBeDealtEvenly) {
  ModelSpec spec;
  spec.layers = 1;
  spec.hidden_dim = 4;
  spec.ffn_dim = 4;
  spec.vocab_size = 3;
  spec.head_dim = 2;
  spec.num_heads = 6;
  spec.num_kv_heads = 3;
  ModelShard shard = whole_model(spec);
  shard.tp = 2;
  EXPECT_THROW(shard_tensors(spec, Head::kLanguageModel, shard), Error);
  shard.tp = 4;  // 12 rows of Q could be cut, its 6 heads cannot
  spec.num_kv_heads = 2;
  EXPECT_THROW(shard_tensors(spec, Head::kLanguageModel, shard), Error);
}

}  // namespace
}  // namespace rpeg
