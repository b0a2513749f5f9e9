#include "rpeg/spec/model_shard.h"

#include <fmt/format.h>

#include <algorithm>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// Collects the tensors of a shard.
class ShardBuilder {
 public:
  ShardBuilder(const ModelSpec& spec, const ModelShard& shard) : spec_(spec), shard_(shard) {}

  /// A tensor that every tensor-parallel rank holds whole.
  ShardTensor& add_whole(std::string name, std::vector<std::int64_t> shape) {
    ShardTensor& tensor = add(std::move(name), std::move(shape), -1, 0, 1);
    tensor.is_owner = shard_.tp_rank == 0;
    return tensor;
  }

  /// A tensor whose dimension `dim` is cut into equal parts.
  ShardTensor& add_even(std::string name, std::vector<std::int64_t> shape, int dim) {
    const std::int64_t extent = shape[static_cast<std::size_t>(dim)];
    check(extent % shard_.tp == 0, fmt::format("{} cannot be split {} ways", name, shard_.tp));
    const std::int64_t part = extent / shard_.tp;
    return add(
        std::move(name), std::move(shape), dim, shard_.tp_rank * part, (shard_.tp_rank + 1) * part);
  }

  ShardTensor& add_vocabulary(std::string name) {
    const auto [begin, end] = vocabulary_rows(spec_, shard_.tp, shard_.tp_rank);
    return add(std::move(name), {spec_.vocab_size, spec_.hidden_dim}, 0, begin, end);
  }

  /// Rows of the key or value heads.
  ShardTensor& add_heads(std::string name, std::vector<std::int64_t> shape) {
    const auto [first, last] = key_value_heads(spec_, shard_.tp, shard_.tp_rank);
    ShardTensor& tensor =
        add(std::move(name), std::move(shape), 0, first * spec_.head_dim, last * spec_.head_dim);
    if (shard_.tp > spec_.num_kv_heads) {
      tensor.gradient_sum = GradientSum::kKeyValueReplicas;
      tensor.is_owner = shard_.tp_rank % (shard_.tp / spec_.num_kv_heads) == 0;
    }
    return tensor;
  }

  std::vector<ShardTensor> take() { return std::move(tensors_); }

 private:
  ShardTensor& add(std::string name,
                   std::vector<std::int64_t> shape,
                   int dim,
                   std::int64_t begin,
                   std::int64_t end) {
    std::int64_t count = 1;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      count *= static_cast<int>(i) == dim ? end - begin : shape[i];
    }
    tensors_.push_back({std::move(name), std::move(shape), dim, begin, end, count});
    return tensors_.back();
  }

  const ModelSpec& spec_;
  const ModelShard& shard_;
  std::vector<ShardTensor> tensors_;
};

void add_layer(const ModelSpec& spec, std::int64_t layer, ShardBuilder& builder) {
  const std::int64_t h = spec.hidden_dim;
  const std::int64_t queries = spec.num_heads * spec.head_dim;
  const std::int64_t keys = spec.num_kv_heads * spec.head_dim;
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  // Q, K, V end to end, and gate with up, so that each group is one matrix product.
  builder.add_whole(prefix + "input_layernorm.weight", {h});
  builder.add_even(prefix + "self_attn.q_proj.weight", {queries, h}, 0);
  builder.add_heads(prefix + "self_attn.k_proj.weight", {keys, h});
  builder.add_heads(prefix + "self_attn.v_proj.weight", {keys, h});
  if (spec.qkv_bias) {
    builder.add_even(prefix + "self_attn.q_proj.bias", {queries}, 0);
    builder.add_heads(prefix + "self_attn.k_proj.bias", {keys});
    builder.add_heads(prefix + "self_attn.v_proj.bias", {keys});
  }
  if (spec.qk_norm) {
    for (const char* name : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"}) {
      // Each rank sees its own heads only.
      builder.add_whole(prefix + name, {spec.head_dim}).gradient_sum = GradientSum::kTensorParallel;
    }
  }
  builder.add_even(prefix + "self_attn.o_proj.weight", {h, queries}, 1);
  builder.add_whole(prefix + "post_attention_layernorm.weight", {h});
  builder.add_even(prefix + "mlp.gate_proj.weight", {spec.ffn_dim, h}, 0);
  builder.add_even(prefix + "mlp.up_proj.weight", {spec.ffn_dim, h}, 0);
  builder.add_even(prefix + "mlp.down_proj.weight", {h, spec.ffn_dim}, 1);
}

}  // namespace

ModelShard whole_model(const ModelSpec& spec) {
  return {.tp = 1,
          .tp_rank = 0,
          .first_layer = 0,
          .last_layer = spec.layers,
          .has_embedding = true,
          .has_head = true};
}

std::pair<std::int64_t, std::int64_t> vocabulary_rows(const ModelSpec& spec, int tp, int tp_rank) {
  return {spec.vocab_size * tp_rank / tp, spec.vocab_size * (tp_rank + 1) / tp};
}

std::pair<std::int64_t, std::int64_t> key_value_heads(const ModelSpec& spec, int tp, int tp_rank) {
  const std::int64_t heads = spec.num_kv_heads;
  if (heads % tp == 0) {
    return {heads / tp * tp_rank, heads / tp * (tp_rank + 1)};
  }
  check(tp % heads == 0,
        fmt::format("{} key-value heads cannot be dealt to {} tensor-parallel ranks", heads, tp));
  const std::int64_t head = tp_rank / (tp / heads);
  return {head, head + 1};
}

ShardRuns shard_runs(const ShardTensor& tensor) {
  if (tensor.split_dim < 0) {
    return {.count = 1, .length = tensor.count, .first = 0, .stride = tensor.count};
  }
  const auto split = tensor.shape.begin() + tensor.split_dim;
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  std::for_each(tensor.shape.begin(), split, [&](std::int64_t extent) { outer *= extent; });
  std::for_each(split + 1, tensor.shape.end(), [&](std::int64_t extent) { inner *= extent; });
  return {.count = outer,
          .length = (tensor.end - tensor.begin) * inner,
          .first = tensor.begin * inner,
          .stride = *split * inner};
}

std::vector<ShardTensor> shard_tensors(const ModelSpec& spec, Head head, const ModelShard& shard) {
  constexpr const char* kEmbedding = "model.embed_tokens.weight";
  check(
      spec.num_heads % shard.tp == 0,
      fmt::format(
          "{} query heads cannot be dealt to {} tensor-parallel ranks", spec.num_heads, shard.tp));
  ShardBuilder builder(spec, shard);
  const bool has_language_head = shard.has_head && head != Head::kScalar;
  // A scalar head alone leaves the tied table an embedding only.
  const bool is_shared_by_stages =
      spec.tied_embeddings && head != Head::kScalar && shard.has_embedding != shard.has_head;
  if (shard.has_embedding) {
    ShardTensor& table = builder.add_vocabulary(kEmbedding);
    if (is_shared_by_stages) {
      table.gradient_sum = GradientSum::kTiedStages;
    }
  }
  for (std::int64_t layer = shard.first_layer; layer < shard.last_layer; ++layer) {
    add_layer(spec, layer, builder);
  }
  if (shard.has_head) {
    builder.add_whole("model.norm.weight", {spec.hidden_dim});
  }
  if (has_language_head && !spec.tied_embeddings) {
    builder.add_vocabulary("lm_head.weight");
  } else if (has_language_head && !shard.has_embedding) {
    ShardTensor& table = builder.add_vocabulary(kEmbedding);
    table.gradient_sum = GradientSum::kTiedStages;
    table.is_owner = false;
  }
  if (shard.has_head && head != Head::kLanguageModel) {
    builder.add_whole("score.weight", {1, spec.hidden_dim});
  }
  return builder.take();
}

}  // namespace rpeg
