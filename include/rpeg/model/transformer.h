#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rpeg/comm/comm.h"
#include "rpeg/model/parameters.h"

namespace rpeg {

/// Sequences packed end to end without padding. Sequence i holds tokens [starts[i], starts[i+1]);
/// attention never crosses a boundary and positions restart at 0.
struct PackedBatch {
  std::vector<std::int32_t> tokens;     ///< (T)
  std::vector<std::int64_t> starts{0};  ///< (B+1), starts[0] = 0, starts[B] = T

  std::int64_t token_count() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t sequence_count() const { return static_cast<std::int64_t>(starts.size()) - 1; }
};

/// Appends one sequence.
void append_sequence(PackedBatch& batch, std::span<const std::int32_t> tokens);

/// The ranks that hold a model together with this one; null pointers where there is only one.
struct ShardGroups {
  Comm* tensor = nullptr;       ///< the tp ranks of this rank's stage, by tp_rank
  Comm* pipeline = nullptr;     ///< the pp ranks with this tp_rank, by stage
  Comm* kv_replicas = nullptr;  ///< the tp / n_kv ranks with this rank's key-value head (tp > n_kv)
};

/// A shard of a model and its weights in element type T (float to train, double to prove numerics).
/// Collectives over `groups` are entered by all their ranks with the same batch.
template <typename T>
struct Model {
  const ModelSpec* spec = nullptr;
  const ParameterLayout* layout = nullptr;
  std::span<const T> weights;  ///< (layout->total)
  ShardGroups groups{};
};

/// What a forward pass keeps for its backward pass, and scratch space. Reused across calls so that
/// a step allocates nothing once it has seen its largest batch. May be moved, not copied, between
/// the two passes.
template <typename T>
struct Activations {
  std::vector<T> storage;  ///< what the backward pass needs, laid out by the forward pass
  std::vector<T> scratch;  ///< used within a call
  std::vector<T>
      d_hidden;  ///< (T, h) derivative by the hidden states, for backward_scores, _values
};

/// Per-token scores of a language model at a given temperature. Entry t is about predicting token t
/// from those before it in its sequence; the entry of each first token is 0.
template <typename T>
struct TokenScores {
  std::vector<T> logprob;  ///< (T) log softmax(logits / temperature)[token]
  std::vector<T> entropy;  ///< (T) entropy of softmax(logits / temperature), nats
};

// The functions below run a model of one pipeline stage; stage.h has its parts and pipelines.

/// Scores every token of `batch`. The logits are formed in blocks of rows, never for the whole
/// batch at once. `activations` may be handed to `backward_scores` until the next forward pass.
template <typename T>
void forward_scores(const Model<T>& model,
                    const PackedBatch& batch,
                    T temperature,
                    Activations<T>& activations,
                    TokenScores<T>& scores);

/// Adds to `gradient` (layout->total) the gradient of a loss whose derivatives by the scores are
/// `d_logprob` and `d_entropy` (each (T); `d_entropy` may be empty).
template <typename T>
void backward_scores(const Model<T>& model,
                     const PackedBatch& batch,
                     T temperature,
                     Activations<T>& activations,
                     std::span<const T> d_logprob,
                     std::span<const T> d_entropy,
                     std::span<T> gradient);

/// Value of each token under a scalar head: values[t] = score . norm(hidden[t]), (T).
template <typename T>
void forward_values(const Model<T>& model,
                    const PackedBatch& batch,
                    Activations<T>& activations,
                    std::vector<T>& values);

/// Adds the gradient of a loss with derivatives `d_values` (T) to `gradient` (layout->total).
template <typename T>
void backward_values(const Model<T>& model,
                     const PackedBatch& batch,
                     Activations<T>& activations,
                     std::span<const T> d_values,
                     std::span<T> gradient);

/// Logits (rows = T, V) of the whole batch, the whole vocabulary on every rank; for tests and tools
/// on small inputs.
template <typename T>
std::vector<T> forward_logits(const Model<T>& model, const PackedBatch& batch);

}  // namespace rpeg
