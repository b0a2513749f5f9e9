#pragma once

/// The layers between the embedding and the head, shared by scoring, training and generation.

#include <cstdint>
#include <span>
#include <vector>

#include "model/arena.h"
#include "rpeg/kernels/attention.h"
#include "rpeg/model/transformer.h"

namespace rpeg {

/// First elements of a layer's matrices in the flat buffer. Q, K and V stand end to end and act as
/// one matrix, as do gate and up.
struct LayerOffsets {
  std::int64_t input_norm, qkv, output, post_norm, gate_up, down;
};
LayerOffsets layer_offsets(const ParameterLayout& layout, std::int64_t layer);
std::int64_t final_norm_offset(const ModelSpec& spec, const ParameterLayout& layout);

/// The head's matrix; the embedding's when the model is tied.
std::int64_t head_offset(const ParameterLayout& layout);

cpu::AttentionShape attention_shape(const ModelSpec& spec);

/// What one layer computes for its rows. Training keeps one of these per layer; generation reuses
/// one for all, with input, middle and the next layer's input in the same place.
template <typename T>
struct LayerActivations {
  T* input;        // (T, h) residual stream
  T* input_norm;   // (T, h)
  T* input_rms;    // (T)
  T* qkv;          // (T, (a + 2 n) d) after rotation
  T* attention;    // (T, a d)
  T* log_sum_exp;  // (T, a)
  T* middle;       // (T, h) residual stream after attention
  T* post_norm;    // (T, h)
  T* post_rms;     // (T)
  T* gate_up;      // (T, 2 f)
  T* gated;        // (T, f)
};

/// Places the buffers of one layer. With `share_residual`, input and middle are one buffer, as are
/// the two norms: enough when nothing will be differentiated.
template <typename T>
LayerActivations<T> place_layer(const ModelSpec& spec,
                                std::int64_t rows,
                                bool share_residual,
                                Arena<T>& arena);

/// The rows that a layer works on.
template <typename T>
struct TrunkRows {
  const Model<T>& model;
  std::span<const std::int32_t> positions;  // (rows)
  const T* cosine;                          // (positions, d / 2)
  const T* sine;

  std::int64_t count() const { return static_cast<std::int64_t>(positions.size()); }
};

/// The layer up to attention: norm, projection, rotation into `layer.qkv`.
template <typename T>
void project_qkv(const TrunkRows<T>& rows, std::int64_t index, const LayerActivations<T>& layer);

/// The layer from attention on: output projection, norm, gated feed-forward; `next` (T, h) receives
/// the residual stream.
template <typename T>
void finish_layer(const TrunkRows<T>& rows,
                  std::int64_t index,
                  const LayerActivations<T>& layer,
                  T* next);

/// Everything that a training forward pass keeps, in Activations::storage.
template <typename T>
struct TrunkActivations {
  T* cosine;
  T* sine;
  std::vector<LayerActivations<T>> layers;
  T* output;      // (T, h) residual stream after the last layer
  T* final_norm;  // (T, h)
  T* final_rms;   // (T)
};

/// Finds the buffers of the last forward pass of this batch (or makes room for a new one).
template <typename T>
TrunkActivations<T> place_trunk(const ModelSpec& spec,
                                const PackedBatch& batch,
                                std::vector<T>& storage);

/// Runs the batch through embedding, layers and final norm. Throws kInternal for a token outside
/// the vocabulary or a sequence longer than the model's positions: both were checked when read.
template <typename T>
TrunkActivations<T> trunk_forward(const Model<T>& model,
                                  const PackedBatch& batch,
                                  Activations<T>& activations);

/// Buffers of a backward pass; each is overwritten layer after layer.
template <typename T>
struct BackwardScratch {
  T* d_stream;     // (T, h)
  T* d_norm;       // (T, h)
  T* d_qkv;        // (T, (a + 2 n) d)
  T* d_attention;  // (T, a d)
  T* d_gate_up;    // (T, 2 f)
  T* d_gated;      // (T, f)
  T* attention;    // the kernel's own scratch
};
template <typename T>
BackwardScratch<T> place_backward(const ModelSpec& spec, const PackedBatch& batch, Arena<T>& arena);

/// Adds to `gradient` that of everything below the head, from d_final_norm (T, h).
template <typename T>
void trunk_backward(const Model<T>& model,
                    const PackedBatch& batch,
                    const TrunkActivations<T>& trunk,
                    const BackwardScratch<T>& scratch,
                    const T* d_final_norm,
                    std::span<T> gradient);

}  // namespace rpeg
