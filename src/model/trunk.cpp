#include "model/trunk.h"

#include <algorithm>
#include <numbers>

#include "rpeg/base/error.h"
#include "rpeg/kernels/add.h"
#include "rpeg/kernels/embedding.h"
#include "rpeg/kernels/head_norm.h"
#include "rpeg/kernels/linear.h"
#include "rpeg/kernels/rmsnorm.h"
#include "rpeg/kernels/rope.h"
#include "rpeg/kernels/silu_gate.h"

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

bool is_split(const ShardGroups& groups) {
  return groups.tensor != nullptr && groups.tensor->size() > 1;
}

/// target (rows, out) += x . w^T over all ranks' columns of w.
template <typename T>
void project_onto_stream(
    const TrunkRows<T>& rows, std::int64_t in, const T* x, const T* w, T* target) {
  const cpu::LinearShape shape{rows.count(), rows.shape.hidden, in};
  if (!is_split(rows.model.groups)) {
    cpu::linear_forward_add(shape, x, w, target, rows.packed);
    return;
  }
  cpu::linear_forward(shape, x, w, rows.partial, rows.packed);
  const std::int64_t count = rows.count() * rows.shape.hidden;
  sum_over_tensor(rows.model.groups, rows.partial, count);
  cpu::add(count, rows.partial, target);
}

template <typename T>
void norm_input(const TrunkRows<T>& rows, std::int64_t norm, const LayerActivations<T>& layer) {
  cpu::rmsnorm_forward({rows.count(), rows.shape.hidden, rows.model.spec->rms_norm_eps},
                       layer.input,
                       rows.model.weights.data() + norm,
                       layer.input_norm,
                       layer.input_rms);
}

/// The residual stream after attention.
template <typename T>
void project_attention(const TrunkRows<T>& rows,
                       std::int64_t output,
                       const LayerActivations<T>& layer) {
  if (layer.middle != layer.input) {
    std::copy_n(layer.input, rows.count() * rows.shape.hidden, layer.middle);
  }
  project_onto_stream(rows,
                      rows.shape.attention.query_width(),
                      static_cast<const T*>(layer.attention),
                      rows.model.weights.data() + output,
                      layer.middle);
}

/// The feed-forward block up to its last projection.
template <typename T>
void expand_feed_forward(const TrunkRows<T>& rows,
                         const LayerOffsets& offsets,
                         const LayerActivations<T>& layer) {
  const T* weights = rows.model.weights.data();
  const std::int64_t h = rows.shape.hidden;
  const std::int64_t f = rows.shape.ffn;
  cpu::rmsnorm_forward({rows.count(), h, rows.model.spec->rms_norm_eps},
                       layer.middle,
                       weights + offsets.post_norm,
                       layer.post_norm,
                       layer.post_rms);
  cpu::linear_forward({rows.count(), 2 * f, h},
                      layer.post_norm,
                      weights + offsets.gate_up,
                      layer.gate_up,
                      rows.packed);
  cpu::silu_gate_forward(rows.count(), f, layer.gate_up, layer.gated);
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

template <typename T>
void sum_over_tensor(const ShardGroups& groups, T* values, std::int64_t count) {
  if (is_split(groups)) {
    groups.tensor->all_reduce_sum(std::span<T>(values, static_cast<std::size_t>(count)));
  }
}

template <typename T>
void embed(const Model<T>& model, std::span<const std::int32_t> tokens, T* y) {
  const LocalShape shape = local_shape(*model.spec, model.layout->shard);
  cpu::embedding_forward(
      {shape.hidden, shape.first_token, shape.vocabulary}, tokens, model.weights.data(), y);
  sum_over_tensor(model.groups, y, static_cast<std::int64_t>(tokens.size()) * shape.hidden);
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

template <typename T>
void project_qkv(const TrunkRows<T>& rows, std::int64_t index, const LayerActivations<T>& layer) {
  const ModelSpec& spec = *rows.model.spec;
  const T* weights = rows.model.weights.data();
  const LayerOffsets offsets = layer_offsets(spec, *rows.model.layout, index);
  const cpu::AttentionShape& shape = rows.shape.attention;
  norm_input(rows, offsets.input_norm, layer);
  cpu::linear_forward({rows.count(), shape.qkv_width(), rows.shape.hidden},
                      layer.input_norm,
                      weights + offsets.qkv,
                      layer.qkv,
                      rows.packed);
  if (spec.qkv_bias) {
    cpu::add_bias(rows.count(), shape.qkv_width(), weights + offsets.qkv_bias, layer.qkv);
  }
  if (spec.qk_norm) {
    cpu::head_norm_forward(head_norm_shape(rows.shape, rows.count(), spec.rms_norm_eps),
                           weights + offsets.query_norm,
                           weights + offsets.key_norm,
                           layer.qkv,
                           layer.raw_heads,
                           layer.heads_rms);
  }
  cpu::rope_forward(
      rope_shape(rows.shape, rows.count()), rows.positions, rows.cosine, rows.sine, layer.qkv);
}

template <typename T>
void finish_layer(const TrunkRows<T>& rows,
                  std::int64_t index,
                  const LayerActivations<T>& layer,
                  T* next) {
  const LayerOffsets offsets = layer_offsets(*rows.model.spec, *rows.model.layout, index);
  project_attention(rows, offsets.output, layer);
  expand_feed_forward(rows, offsets, layer);
  if (next != layer.middle) {
    std::copy_n(layer.middle, rows.count() * rows.shape.hidden, next);
  }
  project_onto_stream(rows,
                      rows.shape.ffn,
                      static_cast<const T*>(layer.gated),
                      rows.model.weights.data() + offsets.down,
                      next);
}

template <typename T>
void recompute_layer(const TrunkRows<T>& rows,
                     std::span<const std::int64_t> starts,
                     std::int64_t index,
                     Recompute recompute,
                     const LayerActivations<T>& layer,
                     T* attention_scratch) {
  if (recompute == Recompute::kNone) {
    return;
  }
  const LayerOffsets offsets = layer_offsets(*rows.model.spec, *rows.model.layout, index);
  if (recompute == Recompute::kFull) {
    project_qkv(rows, index, layer);
    cpu::attention_forward(rows.shape.attention,
                           starts,
                           layer.qkv,
                           layer.attention,
                           layer.log_sum_exp,
                           attention_scratch);
    project_attention(rows, offsets.output, layer);
  } else {
    norm_input(rows, offsets.input_norm, layer);
  }
  expand_feed_forward(rows, offsets, layer);
}

template void sum_over_tensor(const ShardGroups&, float*, std::int64_t);
template void sum_over_tensor(const ShardGroups&, double*, std::int64_t);
template void embed(const Model<float>&, std::span<const std::int32_t>, float*);
template void embed(const Model<double>&, std::span<const std::int32_t>, double*);
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
template void project_qkv(const TrunkRows<float>&, std::int64_t, const LayerActivations<float>&);
template void project_qkv(const TrunkRows<double>&, std::int64_t, const LayerActivations<double>&);
template void finish_layer(const TrunkRows<float>&,
                           std::int64_t,
                           const LayerActivations<float>&,
                           float*);
template void finish_layer(const TrunkRows<double>&,
                           std::int64_t,
                           const LayerActivations<double>&,
                           double*);
template void recompute_layer(const TrunkRows<float>&,
                              std::span<const std::int64_t>,
                              std::int64_t,
                              Recompute,
                              const LayerActivations<float>&,
                              float*);
template void recompute_layer(const TrunkRows<double>&,
                              std::span<const std::int64_t>,
                              std::int64_t,
                              Recompute,
                              const LayerActivations<double>&,
                              double*);

}  // namespace rpeg
