#include "rpeg/job/tensors.h"

#include <fmt/format.h>

#include <utility>

namespace rpeg {

std::vector<ModelTensor> model_tensors(const ModelSpec& spec, bool scalar_head) {
  std::vector<ModelTensor> tensors;
  const auto add = [&](std::string name, std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) {
      count *= extent;
    }
    tensors.push_back({std::move(name), std::move(shape), count});
  };
  const std::int64_t h = spec.hidden_dim;
  const std::int64_t queries = spec.num_heads * spec.head_dim;
  const std::int64_t keys = spec.num_kv_heads * spec.head_dim;
  add("model.embed_tokens.weight", {spec.vocab_size, h});
  for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    add(prefix + "input_layernorm.weight", {h});
    add(prefix + "self_attn.q_proj.weight", {queries, h});
    add(prefix + "self_attn.k_proj.weight", {keys, h});
    add(prefix + "self_attn.v_proj.weight", {keys, h});
    add(prefix + "self_attn.o_proj.weight", {h, queries});
    add(prefix + "post_attention_layernorm.weight", {h});
    add(prefix + "mlp.gate_proj.weight", {spec.ffn_dim, h});
    add(prefix + "mlp.up_proj.weight", {spec.ffn_dim, h});
    add(prefix + "mlp.down_proj.weight", {h, spec.ffn_dim});
  }
  add("model.norm.weight", {h});
  if (scalar_head) {
    add("score.weight", {1, h});
  } else if (!spec.tied_embeddings) {
    add("lm_head.weight", {spec.vocab_size, h});
  }
  return tensors;
}

}  // namespace rpeg
