#pragma once

/// The layers between the embedding and the head, on one rank of a tensor-parallel group; shared by
/// scoring, training and generation. Layers are counted from the first of the rank's stage.

#include <cstdint>
#include <span>
#include <vector>

#include "model/arena.h"
#include "rpeg/kernels/attention.h"
#include "rpeg/kernels/head_norm.h"
#include "rpeg/kernels/rope.h"
#include "rpeg/model/transformer.h"
#include "rpeg/spec/workload_config.h"

namespace rpeg {

/// The sizes that one rank computes with.
struct LocalShape {
  std::int64_t layers = 0;        ///< of the stage
  std::int64_t hidden = 0;        ///< h, whole on every rank
  cpu::AttentionShape attention;  ///< the rank's heads
  std::int64_t ffn = 0;           ///< its columns of gate and up
  std::int64_t first_token = 0;   ///< its rows of the vocabulary
  std::int64_t vocabulary = 0;
  bool head_norms = false;
};
LocalShape local_shape(const ModelSpec& spec, const ModelShard& shard);

/// The query and key heads in rows of Q, K and V: what is normed and rotated.
cpu::HeadNormShape head_norm_shape(const LocalShape& shape, std::int64_t rows, double eps);
cpu::RopeShape rope_shape(const LocalShape& shape, std::int64_t rows);

/// First elements of a layer's tensors in the flat buffer. Q, K and V stand end to end and act as
/// one matrix (and one bias), as do gate and up. -1: the model has no such tensor.
struct LayerOffsets {
  std::int64_t input_norm, qkv, qkv_bias, query_norm, key_norm, output, post_norm, gate_up, down;
};
LayerOffsets layer_offsets(const ModelSpec& spec,
                           const ParameterLayout& layout,
                           std::int64_t layer);
/// Of a last stage.
std::int64_t final_norm_offset(const ParameterLayout& layout);
/// The language head's matrix (of a last stage); the embedding's when the model is tied.
std::int64_t language_head_offset(const ParameterLayout& layout);
std::int64_t scalar_head_offset(const ParameterLayout& layout);

/// values (count) ← their sum over the model's tensor-parallel ranks.
template <typename T>
void sum_over_tensor(const ShardGroups& groups, T* values, std::int64_t count);

/// y (T, h): the embeddings of `tokens`, summed over the ranks' parts of the vocabulary.
template <typename T>
void embed(const Model<T>& model, std::span<const std::int32_t> tokens, T* y);

/// Angle per position of each pair of a head (d / 2), the model's scaling applied.
std::vector<double> rotary_frequencies(const ModelSpec& spec);

/// Cosine and sine, each (positions, d / 2), of the model's rotations.
template <typename T>
void fill_angles(const ModelSpec& spec, std::int64_t positions, T* cosine, T* sine);

/// What one layer computes for its rows. Heads and f are the rank's own.
template <typename T>
struct LayerActivations {
  T* input;        // (T, h) residual stream
  T* input_norm;   // (T, h)
  T* input_rms;    // (T)
  T* raw_heads;    // (T, (a + n) d) before their norms; null: no backward pass, or no norms
  T* heads_rms;    // (T, a + n); likewise
  T* qkv;          // (T, (a + 2 n) d) after rotation
  T* attention;    // (T, a d)
  T* log_sum_exp;  // (T, a)
  T* middle;       // (T, h) residual stream after attention
  T* post_norm;    // (T, h)
  T* post_rms;     // (T)
  T* gate_up;      // (T, 2 f)
  T* gated;        // (T, f)
};

/// Places a layer of a training pass: what `recompute` keeps for the backward pass in `kept`, the
/// rest in `dropped`, which the next layer may use again.
template <typename T>
LayerActivations<T> place_layer(const LocalShape& shape,
                                std::int64_t rows,
                                Recompute recompute,
                                Arena<T>& kept,
                                Arena<T>& dropped);

/// Places the one layer that a pass without a backward pass uses for all its layers: input and
/// middle are one buffer, as are the two norms, and `finish_layer` may write to middle.
template <typename T>
LayerActivations<T> place_reused_layer(const LocalShape& shape, std::int64_t rows, Arena<T>& arena);

/// The rows that a layer works on.
template <typename T>
struct TrunkRows {
  const Model<T>& model;
  LocalShape shape;
  std::span<const std::int32_t> positions;  // (rows)
  const T* cosine;                          // (positions, d / 2)
  const T* sine;
  T* partial;  // (rows, h) scratch for sums over ranks; may be null where tp is 1

  std::int64_t count() const { return static_cast<std::int64_t>(positions.size()); }
};

/// The layer up to attention: norm, projection, rotation into `layer.qkv`. No communication.
template <typename T>
void project_qkv(const TrunkRows<T>& rows, std::int64_t index, const LayerActivations<T>& layer);

/// The layer from attention on: output projection, norm, gated feed-forward; `next` (T, h) receives
/// the residual stream. Two sums over the tensor-parallel ranks. `next` may be layer.middle.
template <typename T>
void finish_layer(const TrunkRows<T>& rows,
                  std::int64_t index,
                  const LayerActivations<T>& layer,
                  T* next);

/// Computes again, from what `recompute` kept, the buffers of a layer that it dropped; the same
/// bits as the first time.
template <typename T>
void recompute_layer(const TrunkRows<T>& rows,
                     std::span<const std::int64_t> starts,
                     std::int64_t index,
                     Recompute recompute,
                     const LayerActivations<T>& layer,
                     T* attention_scratch);

/// Buffers of a backward pass; each is overwritten layer after layer.
template <typename T>
struct BackwardScratch {
  T* d_stream;     // (T, h)
  T* d_norm;       // (T, h)
  T* d_qkv;        // (T, (a + 2 n) d)
  T* d_attention;  // (T, a d)
  T* d_gate_up;    // (T, 2 f)
  T* d_gated;      // (T, f)
};
template <typename T>
BackwardScratch<T> place_backward(const LocalShape& shape, std::int64_t rows, Arena<T>& arena);

/// Takes scratch.d_stream from after layer `index` to before it and adds to `gradient`
/// (layout->total). Two sums over the tensor-parallel ranks.
template <typename T>
void layer_backward(const TrunkRows<T>& rows,
                    std::span<const std::int64_t> starts,
                    std::int64_t index,
                    const LayerActivations<T>& layer,
                    const BackwardScratch<T>& scratch,
                    T* attention_scratch,
                    T* gradient);

}  // namespace rpeg
