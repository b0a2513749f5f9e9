#include <algorithm>
#include <numbers>
#include <string_view>

#include "model/trunk.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// First element of the tensor `name`, which stands behind the layers.
std::int64_t offset_behind_layers(const ParameterLayout& layout, std::string_view name) {
  const auto found = std::find_if(
      layout.tensors.rbegin(), layout.tensors.rend(), [&](const ParameterTensor& tensor) {
        return tensor.name == name;
      });
  check(found != layout.tensors.rend(), "the shard holds no such tensor: " + std::string(name));
  return found->offset;
}

/// Dubey et al., "The Llama 3 herd of models", 2024: long wavelengths are stretched by `factor`,
/// short ones kept, those between interpolated.
double scale_llama3(const RopeScaling& scaling, double frequency) {
  const double turns = static_cast<double>(scaling.original_positions) * frequency /
                       (2.0 * std::numbers::pi);  // within the original positions
  const double kept = std::clamp(
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor),
      0.0,
      1.0);
  return kept * frequency + (1.0 - kept) * frequency / scaling.factor;
}

}  // namespace

LocalShape local_shape(const ModelSpec& spec, const ModelShard& shard) {
  const auto [first_head, last_head] = key_value_heads(spec, shard.tp, shard.tp_rank);
  const auto [first_token, last_token] = vocabulary_rows(spec, shard.tp, shard.tp_rank);
  return {.layers = shard.last_layer - shard.first_layer,
          .hidden = spec.hidden_dim,
          .attention = {spec.num_heads / shard.tp, last_head - first_head, spec.head_dim},
          .ffn = spec.ffn_dim / shard.tp,
          .first_token = first_token,
          .vocabulary = last_token - first_token,
          .head_norms = spec.qk_norm};
}

cpu::HeadNormShape head_norm_shape(const LocalShape& shape, std::int64_t rows, double eps) {
  const cpu::AttentionShape& attention = shape.attention;
  return {
      rows, attention.heads, attention.kv_heads, attention.head_dim, attention.qkv_width(), eps};
}

cpu::RopeShape rope_shape(const LocalShape& shape, std::int64_t rows) {
  const cpu::AttentionShape& attention = shape.attention;
  return {rows, attention.heads + attention.kv_heads, attention.head_dim, attention.qkv_width()};
}

LayerOffsets layer_offsets(const ModelSpec& spec,
                           const ParameterLayout& layout,
                           std::int64_t layer) {
  const std::int64_t biases = spec.qkv_bias ? 3 : 0;
  const std::int64_t norms = spec.qk_norm ? 2 : 0;
  const ParameterTensor* tensors =
      layout.tensors.data() + (layout.shard.has_embedding ? 1 : 0) + (9 + biases + norms) * layer;
  const ParameterTensor* behind = tensors + 4 + biases + norms;
  return {.input_norm = tensors[0].offset,
          .qkv = tensors[1].offset,
          .qkv_bias = spec.qkv_bias ? tensors[4].offset : -1,
          .query_norm = spec.qk_norm ? tensors[4 + biases].offset : -1,
          .key_norm = spec.qk_norm ? tensors[5 + biases].offset : -1,
          .output = behind[0].offset,
          .post_norm = behind[1].offset,
          .gate_up = behind[2].offset,
          .down = behind[4].offset};
}

std::int64_t final_norm_offset(const ParameterLayout& layout) {
  return offset_behind_layers(layout, "model.norm.weight");
}

std::int64_t language_head_offset(const ParameterLayout& layout) {
  // Behind the layers stand at most the final norm and two heads.
  const std::size_t count = layout.tensors.size();
  for (std::size_t i = count; i > 0 && count - i < 2; --i) {
    const ParameterTensor& tensor = layout.tensors[i - 1];
    if (tensor.name == "lm_head.weight") {
      return tensor.offset;
    }
  }
  return offset_behind_layers(layout, "model.embed_tokens.weight");
}

std::int64_t scalar_head_offset(const ParameterLayout& layout) {
  return offset_behind_layers(layout, "score.weight");
}

std::vector<double> rotary_frequencies(const ModelSpec& spec) {
  std::vector<double> frequencies = cpu::rope_frequencies(spec.rope_theta, spec.head_dim);
  for (double& frequency : frequencies) {
    switch (spec.rope_scaling.kind) {
      case RopeScalingKind::kNone:
        break;
      case RopeScalingKind::kLinear:
        frequency /= spec.rope_scaling.factor;
        break;
      case RopeScalingKind::kLlama3:
        frequency = scale_llama3(spec.rope_scaling, frequency);
        break;
    }
  }
  return frequencies;
}

template <typename T>
void fill_angles(const ModelSpec& spec, std::int64_t positions, T* cosine, T* sine) {
  cpu::rope_table(rotary_frequencies(spec), positions, cosine, sine);
}

template <typename T>
LayerActivations<T> place_layer(const LocalShape& shape,
                                std::int64_t rows,
                                Recompute recompute,
                                Arena<T>& kept,
                                Arena<T>& dropped) {
  Arena<T>& cheap = recompute == Recompute::kNone ? kept : dropped;
  Arena<T>& costly = recompute == Recompute::kFull ? dropped : kept;
  const cpu::AttentionShape& attention = shape.attention;
  const std::int64_t normed = shape.head_norms ? attention.heads + attention.kv_heads : 0;
  LayerActivations<T> layer{};
  layer.input = kept.take(rows * shape.hidden);
  layer.input_norm = cheap.take(rows * shape.hidden);
  layer.input_rms = cheap.take(rows);
  layer.raw_heads = costly.take(rows * normed * attention.head_dim);
  layer.heads_rms = costly.take(rows * normed);
  layer.qkv = costly.take(rows * attention.qkv_width());
  layer.attention = costly.take(rows * attention.query_width());
  layer.log_sum_exp = costly.take(rows * attention.heads);
  layer.middle = costly.take(rows * shape.hidden);
  layer.post_norm = cheap.take(rows * shape.hidden);
  layer.post_rms = cheap.take(rows);
  layer.gate_up = cheap.take(rows * 2 * shape.ffn);
  layer.gated = cheap.take(rows * shape.ffn);
  return layer;
}

template <typename T>
LayerActivations<T> place_reused_layer(const LocalShape& shape,
                                       std::int64_t rows,
                                       Arena<T>& arena) {
  LayerActivations<T> layer{};
  layer.input = layer.middle = arena.take(rows * shape.hidden);
  layer.input_norm = layer.post_norm = arena.take(rows * shape.hidden);
  layer.input_rms = layer.post_rms = arena.take(rows);
  layer.qkv = arena.take(rows * shape.attention.qkv_width());
  layer.attention = arena.take(rows * shape.attention.query_width());
  layer.log_sum_exp = arena.take(rows * shape.attention.heads);
  layer.gate_up = arena.take(rows * 2 * shape.ffn);
  layer.gated = arena.take(rows * shape.ffn);
  return layer;
}

template void fill_angles(const ModelSpec&, std::int64_t, float*, float*);
template void fill_angles(const ModelSpec&, std::int64_t, double*, double*);
template LayerActivations<float> place_layer(
    const LocalShape&, std::int64_t, Recompute, Arena<float>&, Arena<float>&);
template LayerActivations<double> place_layer(
    const LocalShape&, std::int64_t, Recompute, Arena<double>&, Arena<double>&);
template LayerActivations<float> place_reused_layer(const LocalShape&, std::int64_t, Arena<float>&);
template LayerActivations<double> place_reused_layer(const LocalShape&,
                                                     std::int64_t,
                                                     Arena<double>&);

}  // namespace rpeg
