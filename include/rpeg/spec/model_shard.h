#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rpeg/spec/model_spec.h"

namespace rpeg {

/// What stands on top of the trunk.
enum class Head {
  kLanguageModel,  ///< logits over the vocabulary (lm_head.weight, or the tied embedding)
  kScalar,         ///< one number per token (score.weight (1, h)): critics, reward models
  kBoth,           ///< both on one trunk that actor and critic share
};

/// The part of a model that one rank of a tensor- and pipeline-parallel block holds. Matrices are
/// split as in Shoeybi et al., "Megatron-LM", 2019: Q, K, V, gate, up, embedding and language head
/// by rows (output features), O and down by columns; norms and the scalar head are on every rank.
struct ModelShard {
  int tp = 1;
  int tp_rank = 0;
  std::int64_t first_layer = 0;  ///< layers [first_layer, last_layer)
  std::int64_t last_layer = 0;
  bool has_embedding = true;  ///< the first stage
  bool has_head = true;       ///< final norm and heads: the last stage
  bool operator==(const ModelShard&) const = default;
};

/// The shard that is the whole model.
ModelShard whole_model(const ModelSpec& spec);

/// Over which ranks a tensor's gradient is summed after a backward pass (besides data parallelism).
enum class GradientSum {
  kNone,              ///< split, or equal on all ranks already
  kTensorParallel,    ///< every rank has a partial sum: norms inside attention heads
  kKeyValueReplicas,  ///< ranks that hold the same key-value head (tp > n_kv)
  kTiedStages,        ///< embedding of the first stage and head of the last are one tensor
};

/// One tensor of a shard.
struct ShardTensor {
  std::string name;                 ///< Hugging Face name
  std::vector<std::int64_t> shape;  ///< of the whole tensor, (out, in) for matrices
  int split_dim = -1;               ///< the dimension that is split; -1: held whole
  std::int64_t begin = 0;           ///< this rank holds [begin, end) of `split_dim`; whole: [0, 1)
  std::int64_t end = 1;
  std::int64_t count = 0;  ///< elements held
  GradientSum gradient_sum = GradientSum::kNone;
  bool is_owner = true;  ///< of equal copies of the block the one that counts in norms and files
  bool operator==(const ShardTensor&) const = default;
};

/// Where the elements that a shard holds of a tensor stand in the whole tensor, both row-major:
/// `count` stretches of `length` elements; stretch i begins at element first + i * stride of the
/// whole and at element i * length of the part.
struct ShardRuns {
  std::int64_t count = 0;
  std::int64_t length = 0;
  std::int64_t first = 0;
  std::int64_t stride = 0;
};
ShardRuns shard_runs(const ShardTensor& tensor);

/// The tensors of a shard in parameter order: embedding, layers (input norm, Q, K, V, their biases
/// and head norms, O, post norm, gate, up, down), final norm, language head, scalar head. A last
/// stage without the embedding of a tied model holds the embedding again as its head.
std::vector<ShardTensor> shard_tensors(const ModelSpec& spec, Head head, const ModelShard& shard);

/// Rows of the vocabulary that rank `tp_rank` of `tp` holds: as evenly as possible.
std::pair<std::int64_t, std::int64_t> vocabulary_rows(const ModelSpec& spec, int tp, int tp_rank);
/// Key-value heads that it holds: n_kv / tp of them, or one that tp / n_kv ranks share.
std::pair<std::int64_t, std::int64_t> key_value_heads(const ModelSpec& spec, int tp, int tp_rank);

}  // namespace rpeg
