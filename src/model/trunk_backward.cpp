#include "model/trunk.h"
#include "rpeg/kernels/add.h"
#include "rpeg/kernels/head_norm.h"
#include "rpeg/kernels/linear.h"
#include "rpeg/kernels/rmsnorm.h"
#include "rpeg/kernels/rope.h"
#include "rpeg/kernels/silu_gate.h"

namespace rpeg {
namespace {

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
  cpu::RmsNormShape norm() const { return {rows.count(), rows.shape.hidden, spec().rms_norm_eps}; }
  /// A norm sees the gradient of all ranks' columns: then its own gradient and the stream's are
  /// the same bits on every rank.
  void sum_d_norm() const {
    sum_over_tensor(rows.model.groups, scratch.d_norm, rows.count() * rows.shape.hidden);
  }
};

/// Takes d_stream from after the feed-forward block to before it.
template <typename T>
void feed_forward_backward(const LayerGradient<T>& g) {
  const std::int64_t h = g.rows.shape.hidden;
  const std::int64_t f = g.rows.shape.ffn;
  const BackwardScratch<T>& s = g.scratch;
  const auto down = g.linear(h, f);
  cpu::linear_backward_input(down, s.d_stream, g.weights() + g.offsets.down, s.d_gated);
  cpu::linear_backward_weight(down, s.d_stream, g.layer.gated, g.gradient + g.offsets.down);
  cpu::silu_gate_backward(g.rows.count(), f, g.layer.gate_up, s.d_gated, s.d_gate_up);
  const auto gate_up = g.linear(2 * f, h);
  cpu::linear_backward_weight(
      gate_up, s.d_gate_up, g.layer.post_norm, g.gradient + g.offsets.gate_up);
  cpu::linear_backward_input(gate_up, s.d_gate_up, g.weights() + g.offsets.gate_up, s.d_norm);
  g.sum_d_norm();
  cpu::rmsnorm_backward(g.norm(),
                        g.layer.middle,
                        g.weights() + g.offsets.post_norm,
                        g.layer.post_rms,
                        s.d_norm,
                        s.d_stream,
                        g.gradient + g.offsets.post_norm);
}

/// Takes d_qkv from after the rotation to before norms and biases.
template <typename T>
void heads_backward(const LayerGradient<T>& g) {
  const TrunkRows<T>& rows = g.rows;
  T* d_qkv = g.scratch.d_qkv;
  cpu::rope_backward(
      rope_shape(rows.shape, rows.count()), rows.positions, rows.cosine, rows.sine, d_qkv);
  if (g.spec().qk_norm) {
    cpu::head_norm_backward(head_norm_shape(rows.shape, rows.count(), g.spec().rms_norm_eps),
                            g.weights() + g.offsets.query_norm,
                            g.weights() + g.offsets.key_norm,
                            g.layer.raw_heads,
                            g.layer.heads_rms,
                            d_qkv,
                            g.gradient + g.offsets.query_norm,
                            g.gradient + g.offsets.key_norm);
  }
  if (g.spec().qkv_bias) {
    cpu::add_bias_backward(
        rows.count(), rows.shape.attention.qkv_width(), d_qkv, g.gradient + g.offsets.qkv_bias);
  }
}

/// Takes d_stream from after the attention block to before it.
template <typename T>
void attention_block_backward(const LayerGradient<T>& g,
                              std::span<const std::int64_t> starts,
                              T* attention_scratch) {
  const std::int64_t h = g.rows.shape.hidden;
  const cpu::AttentionShape& shape = g.rows.shape.attention;
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
                          attention_scratch);
  heads_backward(g);
  const auto qkv = g.linear(shape.qkv_width(), h);
  cpu::linear_backward_weight(qkv, s.d_qkv, g.layer.input_norm, g.gradient + g.offsets.qkv);
  cpu::linear_backward_input(qkv, s.d_qkv, g.weights() + g.offsets.qkv, s.d_norm);
  g.sum_d_norm();
  cpu::rmsnorm_backward(g.norm(),
                        g.layer.input,
                        g.weights() + g.offsets.input_norm,
                        g.layer.input_rms,
                        s.d_norm,
                        s.d_stream,
                        g.gradient + g.offsets.input_norm);
}

}  // namespace

template <typename T>
BackwardScratch<T> place_backward(const LocalShape& shape, std::int64_t rows, Arena<T>& arena) {
  BackwardScratch<T> scratch{};
  scratch.d_stream = arena.take(rows * shape.hidden);
  scratch.d_norm = arena.take(rows * shape.hidden);
  scratch.d_qkv = arena.take(rows * shape.attention.qkv_width());
  scratch.d_attention = arena.take(rows * shape.attention.query_width());
  scratch.d_gate_up = arena.take(rows * 2 * shape.ffn);
  scratch.d_gated = arena.take(rows * shape.ffn);
  return scratch;
}

template <typename T>
void layer_backward(const TrunkRows<T>& rows,
                    std::span<const std::int64_t> starts,
                    std::int64_t index,
                    const LayerActivations<T>& layer,
                    const BackwardScratch<T>& scratch,
                    T* attention_scratch,
                    T* gradient) {
  const LayerGradient<T> g{
      rows, layer, layer_offsets(*rows.model.spec, *rows.model.layout, index), scratch, gradient};
  feed_forward_backward(g);
  attention_block_backward(g, starts, attention_scratch);
}

template BackwardScratch<float> place_backward(const LocalShape&, std::int64_t, Arena<float>&);
template BackwardScratch<double> place_backward(const LocalShape&, std::int64_t, Arena<double>&);
template void layer_backward(const TrunkRows<float>&,
                             std::span<const std::int64_t>,
                             std::int64_t,
                             const LayerActivations<float>&,
                             const BackwardScratch<float>&,
                             float*,
                             float*);
template void layer_backward(const TrunkRows<double>&,
                             std::span<const std::int64_t>,
                             std::int64_t,
                             const LayerActivations<double>&,
                             const BackwardScratch<double>&,
                             double*,
                             double*);

}  // namespace rpeg
