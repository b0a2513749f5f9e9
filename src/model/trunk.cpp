#include "model/trunk.h"

#include <algorithm>

#include "rpeg/kernels/add.h"
#include "rpeg/kernels/embedding.h"
#include "rpeg/kernels/head_norm.h"
#include "rpeg/kernels/linear.h"
#include "rpeg/kernels/rmsnorm.h"
#include "rpeg/kernels/rope.h"
#include "rpeg/kernels/silu_gate.h"

namespace rpeg {
namespace {

bool is_split(const ShardGroups& groups) {
  return groups.tensor != nullptr && groups.tensor->size() > 1;
}

/// target (rows, out) += x . w^T over all ranks' columns of w.
template <typename T>
void project_onto_stream(
    const TrunkRows<T>& rows, std::int64_t in, const T* x, const T* w, T* target) {
  const cpu::LinearShape shape{rows.count(), rows.shape.hidden, in};
  if (!is_split(rows.model.groups)) {
    cpu::linear_forward_add(shape, x, w, target);
    return;
  }
  cpu::linear_forward(shape, x, w, rows.partial);
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
  cpu::linear_forward(
      {rows.count(), 2 * f, h}, layer.post_norm, weights + offsets.gate_up, layer.gate_up);
  cpu::silu_gate_forward(rows.count(), f, layer.gate_up, layer.gated);
}

}  // namespace

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
void project_qkv(const TrunkRows<T>& rows, std::int64_t index, const LayerActivations<T>& layer) {
  const ModelSpec& spec = *rows.model.spec;
  const T* weights = rows.model.weights.data();
  const LayerOffsets offsets = layer_offsets(spec, *rows.model.layout, index);
  const cpu::AttentionShape& shape = rows.shape.attention;
  norm_input(rows, offsets.input_norm, layer);
  cpu::linear_forward({rows.count(), shape.qkv_width(), rows.shape.hidden},
                      layer.input_norm,
                      weights + offsets.qkv,
                      layer.qkv);
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
