#pragma once

#include "rpeg/plan/plan.h"
#include "rpeg/spec/model_shard.h"

// What one rank holds of a model, and the bytes of an element of each kind.

namespace rpeg {

/// Bytes of one element, by what it is.
struct ElementBytes {
  double weight = 0.0;
  double activation = 0.0;
  double kv = 0.0;
  double gradient = 0.0;
  double optimizer = 0.0;  ///< states of AdamW: two moments, and a master copy beside bf16 weights
  double update = 0.0;     ///< read and written by one optimizer step
};
ElementBytes element_bytes(TrainDtype dtype);

/// The head that a vertex computes with: rewards and values are scalars whoever owns the trunk.
Head head_of(const Vertex& vertex);
inline bool has_vocabulary(Head head) { return head != Head::kScalar; }
inline bool has_scalar(Head head) { return head != Head::kLanguageModel; }

/// Rows of the embedding table: at tp > 1 the vocabulary rounded up to a multiple of 128 · tp.
double padded_vocab(const ModelSpec& spec, int tp);

/// KV heads on one rank: at least one, replicated when tp exceeds them.
double local_kv_heads(const ModelSpec& spec, int tp);

/// Elements of the matrices of one layer on one rank (no norms).
double layer_matrix_elements(const ModelSpec& spec, int tp);

/// Elements of the output heads on one rank of the last stage; of a tied table too.
double head_elements(const ModelSpec& spec, Head head, int tp);

/// Layers of a stage, as a number to calculate with.
double stage_layer_count(const ModelSpec& spec, int pp, int stage);

/// All parameters that one rank of pipeline stage `stage` holds.
double stage_elements(const ModelSpec& spec, Head head, const Parallelism& parallelism, int stage);

/// The largest of them over the stages.
double largest_stage_elements(const ModelSpec& spec, Head head, const Parallelism& parallelism);

}  // namespace rpeg
