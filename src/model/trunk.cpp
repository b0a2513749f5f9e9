#include "model/trunk.h"

#include <algorithm>

#include "rpeg/base/error.h"
#include "rpeg/kernels/embedding.h"
#include "rpeg/kernels/linear.h"
#include "rpeg/kernels/rmsnorm.h"
#include "rpeg/kernels/rope.h"
#include "rpeg/kernels/silu_gate.h"

namespace rpeg {
namespace {

constexpr std::int64_t kTensorsPerLayer = 9;

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

cpu::RopeShape rope_shape(const ModelSpec& spec, std::int64_t rows) {
  // Query and key heads stand side by side in a row.
  return {
      rows, spec.num_heads + spec.num_kv_heads, spec.head_dim, attention_shape(spec).qkv_width()};
}

template <typename T>
struct LayerGradient {
  const TrunkRows<T>& rows;
  const LayerActivations<T>& layer;
  const LayerOffsets offsets;
  const BackwardScratch<T>& scratch;
  T* gradient;

  const T* weights() const { return rows.model.weights.data(); }
  const ModelSpec& spec() const { return *rows.model.spec; }
  cpu::LinearShape linear(std::int64_t out, std::int64_t in) const {
    return {rows.count(), out, in};
  }
};

/// Takes d_stream from after the feed-forward block to before it.
template <typename T>
void feed_forward_backward(const LayerGradient<T>& g) {
  const std::int64_t h = g.spec().hidden_dim;
  const std::int64_t f = g.spec().ffn_dim;
  const BackwardScratch<T>& s = g.scratch;
  const auto down = g.linear(h, f);
  cpu::linear_backward_input(down, s.d_stream, g.weights() + g.offsets.down, s.d_gated);
  cpu::linear_backward_weight(down, s.d_stream, g.layer.gated, g.gradient + g.offsets.down);
  cpu::silu_gate_backward(g.rows.count(), f, g.layer.gate_up, s.d_gated, s.d_gate_up);
  const auto gate_up = g.linear(2 * f, h);
  cpu::linear_backward_weight(
      gate_up, s.d_gate_up, g.layer.post_norm, g.gradient + g.offsets.gate_up);
  cpu::linear_backward_input(gate_up, s.d_gate_up, g.weights() + g.offsets.gate_up, s.d_norm);
  cpu::rmsnorm_backward({g.rows.count(), h, g.spec().rms_norm_eps},
                        g.layer.middle,
                        g.weights() + g.offsets.post_norm,
                        g.layer.post_rms,
                        s.d_norm,
                        s.d_stream,
                        g.gradient + g.offsets.post_norm);
}

/// Takes d_stream from after the attention block to before it.
template <typename T>
void attention_block_backward(const LayerGradient<T>& g, std::span<const std::int64_t> starts) {
  const std::int64_t h = g.spec().hidden_dim;
  const cpu::AttentionShape shape = attention_shape(g.spec());
  const BackwardScratch<T>& s = g.scratch;
  const auto output = g.linear(h, shape.query_width());
  cpu::linear_backward_input(output, s.d_stream, g.weights() + g.offsets.output, s.d_attention);
  cpu::linear_backward_weight(output, s.d_stream, g.layer.attention, g.gradient + g.offsets.output);
  cpu::attention_backward(shape,
                          starts,
                          g.layer.qkv,
                          g.layer.attention,
                          g.layer.log_sum_exp,
                          s.d_attention,
                          s.d_qkv,
                          s.attention);
  cpu::rope_backward(
      rope_shape(g.spec(), g.rows.count()), g.rows.positions, g.rows.cosine, g.rows.sine, s.d_qkv);
  const auto qkv = g.linear(shape.qkv_width(), h);
  cpu::linear_backward_weight(qkv, s.d_qkv, g.layer.input_norm, g.gradient + g.offsets.qkv);
  cpu::linear_backward_input(qkv, s.d_qkv, g.weights() + g.offsets.qkv, s.d_norm);
  cpu::rmsnorm_backward({g.rows.count(), h, g.spec().rms_norm_eps},
                        g.layer.input,
                        g.weights() + g.offsets.input_norm,
                        g.layer.input_rms,
                        s.d_norm,
                        s.d_stream,
                        g.gradient + g.offsets.input_norm);
}

}  // namespace

LayerOffsets layer_offsets(const ParameterLayout& layout, std::int64_t layer) {
  const auto* tensors = layout.tensors.data() + 1 + kTensorsPerLayer * layer;
  return {tensors[0].offset,
          tensors[1].offset,
          tensors[4].offset,
          tensors[5].offset,
          tensors[6].offset,
          tensors[8].offset};
}

std::int64_t final_norm_offset(const ModelSpec& spec, const ParameterLayout& layout) {
  return layout.tensors[static_cast<std::size_t>(1 + kTensorsPerLayer * spec.layers)].offset;
}

std::int64_t head_offset(const ParameterLayout& layout) {
  const ParameterTensor& last = layout.tensors.back();
  return last.name == "model.norm.weight" ? layout.tensors.front().offset : last.offset;
}

cpu::AttentionShape attention_shape(const ModelSpec& spec) {
  return {spec.num_heads, spec.num_kv_heads, spec.head_dim};
}

template <typename T>
LayerActivations<T> place_layer(const ModelSpec& spec,
                                std::int64_t rows,
                                bool share_residual,
                                Arena<T>& arena) {
  const cpu::AttentionShape shape = attention_shape(spec);
  LayerActivations<T> layer{};
  layer.input = arena.take(rows * spec.hidden_dim);
  layer.input_norm = arena.take(rows * spec.hidden_dim);
  layer.input_rms = arena.take(rows);
  layer.qkv = arena.take(rows * shape.qkv_width());
  layer.attention = arena.take(rows * shape.query_width());
  layer.log_sum_exp = arena.take(rows * spec.num_heads);
  layer.middle = share_residual ? layer.input : arena.take(rows * spec.hidden_dim);
  layer.post_norm = share_residual ? layer.input_norm : arena.take(rows * spec.hidden_dim);
  layer.post_rms = share_residual ? layer.input_rms : arena.take(rows);
  layer.gate_up = arena.take(rows * 2 * spec.ffn_dim);
  layer.gated = arena.take(rows * spec.ffn_dim);
  return layer;
}

template <typename T>
void project_qkv(const TrunkRows<T>& rows, std::int64_t index, const LayerActivations<T>& layer) {
  const ModelSpec& spec = *rows.model.spec;
  const T* weights = rows.model.weights.data();
  const LayerOffsets offsets = layer_offsets(*rows.model.layout, index);
  const std::int64_t h = spec.hidden_dim;
  cpu::rmsnorm_forward({rows.count(), h, spec.rms_norm_eps},
                       layer.input,
                       weights + offsets.input_norm,
                       layer.input_norm,
                       layer.input_rms);
  cpu::linear_forward({rows.count(), attention_shape(spec).qkv_width(), h},
                      layer.input_norm,
                      weights + offsets.qkv,
                      layer.qkv);
  cpu::rope_forward(
      rope_shape(spec, rows.count()), rows.positions, rows.cosine, rows.sine, layer.qkv);
}

template <typename T>
void finish_layer(const TrunkRows<T>& rows,
                  std::int64_t index,
                  const LayerActivations<T>& layer,
                  T* next) {
  const ModelSpec& spec = *rows.model.spec;
  const T* weights = rows.model.weights.data();
  const LayerOffsets offsets = layer_offsets(*rows.model.layout, index);
  const std::int64_t h = spec.hidden_dim;
  const std::int64_t f = spec.ffn_dim;
  const std::int64_t count = rows.count();
  if (layer.middle != layer.input) {
    std::copy_n(layer.input, count * h, layer.middle);
  }
  cpu::linear_forward_add({count, h, attention_shape(spec).query_width()},
                          layer.attention,
                          weights + offsets.output,
                          layer.middle);
  cpu::rmsnorm_forward({count, h, spec.rms_norm_eps},
                       layer.middle,
                       weights + offsets.post_norm,
                       layer.post_norm,
                       layer.post_rms);
  cpu::linear_forward({count, 2 * f, h}, layer.post_norm, weights + offsets.gate_up, layer.gate_up);
  cpu::silu_gate_forward(count, f, layer.gate_up, layer.gated);
  if (next != layer.middle) {
    std::copy_n(layer.middle, count * h, next);
  }
  cpu::linear_forward_add({count, h, f}, layer.gated, weights + offsets.down, next);
}

template <typename T>
TrunkActivations<T> place_trunk(const ModelSpec& spec,
                                const PackedBatch& batch,
                                std::vector<T>& storage) {
  const std::int64_t rows = batch.token_count();
  const std::int64_t angles = longest_sequence(batch) * spec.head_dim / 2;
  const auto place = [&](Arena<T>& arena) {
    TrunkActivations<T> trunk{};
    trunk.cosine = arena.take(angles);
    trunk.sine = arena.take(angles);
    for (std::int64_t layer = 0; layer < spec.layers; ++layer) {
      trunk.layers.push_back(place_layer(spec, rows, false, arena));
    }
    trunk.output = arena.take(rows * spec.hidden_dim);
    trunk.final_norm = arena.take(rows * spec.hidden_dim);
    trunk.final_rms = arena.take(rows);
    return trunk;
  };
  Arena<T> measured;
  place(measured);
  Arena<T> arena(storage, measured);
  return place(arena);
}

template <typename T>
TrunkActivations<T> trunk_forward(const Model<T>& model,
                                  const PackedBatch& batch,
                                  Activations<T>& activations) {
  const ModelSpec& spec = *model.spec;
  check_batch(spec, batch);
  const TrunkActivations<T> trunk = place_trunk(spec, batch, activations.storage);
  cpu::rope_table(
      spec.rope_theta, spec.head_dim, longest_sequence(batch), trunk.cosine, trunk.sine);
  Arena<T> measured;
  measured.take(cpu::attention_scratch_size(batch.starts));
  T* scratch =
      Arena<T>(activations.scratch, measured).take(cpu::attention_scratch_size(batch.starts));

  const std::vector<std::int32_t> positions = packed_positions(batch);
  const TrunkRows<T> rows{model, positions, trunk.cosine, trunk.sine};
  cpu::embedding_forward(std::span(batch.tokens),
                         spec.hidden_dim,
                         model.weights.data(),
                         spec.layers > 0 ? trunk.layers[0].input : trunk.output);
  for (std::int64_t i = 0; i < spec.layers; ++i) {
    const LayerActivations<T>& layer = trunk.layers[static_cast<std::size_t>(i)];
    project_qkv(rows, i, layer);
    cpu::attention_forward(attention_shape(spec),
                           std::span(batch.starts),
                           layer.qkv,
                           layer.attention,
                           layer.log_sum_exp,
                           scratch);
    const bool last = i + 1 == spec.layers;
    finish_layer(
        rows, i, layer, last ? trunk.output : trunk.layers[static_cast<std::size_t>(i) + 1].input);
  }
  cpu::rmsnorm_forward({rows.count(), spec.hidden_dim, spec.rms_norm_eps},
                       trunk.output,
                       model.weights.data() + final_norm_offset(spec, *model.layout),
                       trunk.final_norm,
                       trunk.final_rms);
  return trunk;
}

template <typename T>
BackwardScratch<T> place_backward(const ModelSpec& spec,
                                  const PackedBatch& batch,
                                  Arena<T>& arena) {
  const std::int64_t rows = batch.token_count();
  const cpu::AttentionShape shape = attention_shape(spec);
  BackwardScratch<T> scratch{};
  scratch.d_stream = arena.take(rows * spec.hidden_dim);
  scratch.d_norm = arena.take(rows * spec.hidden_dim);
  scratch.d_qkv = arena.take(rows * shape.qkv_width());
  scratch.d_attention = arena.take(rows * shape.query_width());
  scratch.d_gate_up = arena.take(rows * 2 * spec.ffn_dim);
  scratch.d_gated = arena.take(rows * spec.ffn_dim);
  scratch.attention = arena.take(cpu::attention_scratch_size(batch.starts));
  return scratch;
}

template <typename T>
void trunk_backward(const Model<T>& model,
                    const PackedBatch& batch,
                    const TrunkActivations<T>& trunk,
                    const BackwardScratch<T>& scratch,
                    const T* d_final_norm,
                    std::span<T> gradient) {
  const ModelSpec& spec = *model.spec;
  const std::vector<std::int32_t> positions = packed_positions(batch);
  const TrunkRows<T> rows{model, positions, trunk.cosine, trunk.sine};
  const std::int64_t norm = final_norm_offset(spec, *model.layout);
  std::fill_n(scratch.d_stream, rows.count() * spec.hidden_dim, T(0));
  cpu::rmsnorm_backward({rows.count(), spec.hidden_dim, spec.rms_norm_eps},
                        trunk.output,
                        model.weights.data() + norm,
                        trunk.final_rms,
                        d_final_norm,
                        scratch.d_stream,
                        gradient.data() + norm);
  for (std::int64_t i = spec.layers - 1; i >= 0; --i) {
    const LayerGradient<T> layer{rows,
                                 trunk.layers[static_cast<std::size_t>(i)],
                                 layer_offsets(*model.layout, i),
                                 scratch,
                                 gradient.data()};
    feed_forward_backward(layer);
    attention_block_backward(layer, std::span(batch.starts));
  }
  cpu::embedding_backward(
      std::span(batch.tokens), spec.hidden_dim, scratch.d_stream, gradient.data());
}

template LayerActivations<float> place_layer(const ModelSpec&, std::int64_t, bool, Arena<float>&);
template LayerActivations<double> place_layer(const ModelSpec&, std::int64_t, bool, Arena<double>&);
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
template TrunkActivations<float> place_trunk(const ModelSpec&,
                                             const PackedBatch&,
                                             std::vector<float>&);
template TrunkActivations<double> place_trunk(const ModelSpec&,
                                              const PackedBatch&,
                                              std::vector<double>&);
template TrunkActivations<float> trunk_forward(const Model<float>&,
                                               const PackedBatch&,
                                               Activations<float>&);
template TrunkActivations<double> trunk_forward(const Model<double>&,
                                                const PackedBatch&,
                                                Activations<double>&);
template BackwardScratch<float> place_backward(const ModelSpec&, const PackedBatch&, Arena<float>&);
template BackwardScratch<double> place_backward(const ModelSpec&,
                                                const PackedBatch&,
                                                Arena<double>&);
template void trunk_backward(const Model<float>&,
                             const PackedBatch&,
                             const TrunkActivations<float>&,
                             const BackwardScratch<float>&,
                             const float*,
                             std::span<float>);
template void trunk_backward(const Model<double>&,
                             const PackedBatch&,
                             const TrunkActivations<double>&,
                             const BackwardScratch<double>&,
                             const double*,
                             std::span<double>);

}  // namespace rpeg
