#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rpeg/model/transformer.h"
#include "rpeg/spec/workload_config.h"

namespace rpeg {

/// One pipeline stage of a model on one rank: what training and inference run micro-batch by
/// micro-batch. All tensor-parallel ranks of the stage call these functions together, with the same
/// batch; hidden states are whole (T, h) on each of them. A model of one stage is first and last.

/// Runs the layers of this rank's stage. `input` (T, h) comes from the stage before; null on the
/// first stage, which embeds the tokens. Returns (T, h), owned by `activations`: the residual
/// stream, on the last stage after the final norm. What backward needs is kept in
/// activations.storage as `recompute` says: everything (none); Q, K, V, attention and the stream
/// after it, while norms and the feed-forward block are computed again (selective); or only the
/// input of each layer (full). Gradients are the same bits each way. A caller with several
/// micro-batches in flight has one object for each; the `scratch` of one may be moved into the
/// next.
template <typename T>
std::span<const T> stage_forward(const Model<T>& model,
                                 const PackedBatch& batch,
                                 const T* input,
                                 Recompute recompute,
                                 Activations<T>& activations);

/// Adds to `gradient` (layout->total) that of the stage's layers and embedding, given the
/// derivative by what stage_forward returned, `d_output` (T, h); `activations` are that call's.
/// Returns the derivative by `input` (T, h), in activations.scratch, empty on the first stage.
/// Tensors with a `gradient_sum` still hold this rank's part: see `sum_shared_gradients`.
template <typename T>
std::span<const T> stage_backward(const Model<T>& model,
                                  const PackedBatch& batch,
                                  std::span<const T> d_output,
                                  Recompute recompute,
                                  Activations<T>& activations,
                                  std::span<T> gradient);

/// stage_forward without a backward pass: the same bits, with the memory of one layer.
template <typename T>
std::span<const T> stage_infer(const Model<T>& model,
                               const PackedBatch& batch,
                               const T* input,
                               Activations<T>& activations);

/// What the last stage_forward of this batch returned.
template <typename T>
std::span<const T> stage_output(const Model<T>& model,
                                const PackedBatch& batch,
                                Recompute recompute,
                                Activations<T>& activations);

/// Scores of every token from the last stage's output `hidden` (T, h), vocabulary parallel, in
/// blocks of rows; every tensor-parallel rank gets them.
template <typename T>
void head_scores(const Model<T>& model,
                 const PackedBatch& batch,
                 std::span<const T> hidden,
                 T temperature,
                 std::vector<T>& scratch,
                 TokenScores<T>& scores);

/// Adds to `d_hidden` (T, h) and to the head's gradient those of a loss with derivatives
/// `d_logprob` and `d_entropy` (each (T); `d_entropy` may be empty) by the scores.
template <typename T>
void head_scores_backward(const Model<T>& model,
                          const PackedBatch& batch,
                          std::span<const T> hidden,
                          T temperature,
                          std::span<const T> d_logprob,
                          std::span<const T> d_entropy,
                          std::vector<T>& scratch,
                          std::span<T> d_hidden,
                          std::span<T> gradient);

/// Value of each token (T) under the scalar head, and its backward pass (adds, as above).
template <typename T>
void head_values(const Model<T>& model, std::span<const T> hidden, std::vector<T>& values);
template <typename T>
void head_values_backward(const Model<T>& model,
                          std::span<const T> hidden,
                          std::span<const T> d_values,
                          std::span<T> d_hidden,
                          std::span<T> gradient);

/// Tag of the messages of sum_shared_gradients between the first and the last stage in
/// groups.pipeline; below the least limit that MPI grants.
inline constexpr int kTiedGradientTag = 30000;

/// Completes the gradient after the last micro-batch: sums every tensor with a `gradient_sum` over
/// the ranks it names (in rank order), so that equal copies have equal gradients.
template <typename T>
void sum_shared_gradients(const Model<T>& model, std::span<T> gradient);

/// Σ g² over elements [begin, end) of a shard's flat gradient that this rank owns (`is_owner`), in
/// double and a fixed order: the sum over all ranks of a block is the squared norm of the model's.
double owned_sum_of_squares(const ParameterLayout& layout,
                            std::span<const float> gradient,
                            std::int64_t begin,
                            std::int64_t end);

}  // namespace rpeg
