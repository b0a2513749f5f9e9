#pragma once

#include <cstdint>
#include <vector>

#include "rpeg/model/parameters.h"
#include "rpeg/model/transformer.h"

namespace rpeg {

inline ModelSpec tiny_spec(bool tied) {
  ModelSpec spec;
  spec.layers = 2;
  spec.hidden_dim = 12;
  spec.ffn_dim = 10;
  spec.vocab_size = 11;
  spec.head_dim = 4;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.tied_embeddings = tied;
  spec.max_positions = 64;
  spec.initializer_range = 0.4;
  return spec;
}

/// A grouped-query model small enough for finite differences, with weights large enough that every
/// nonlinearity matters.
template <typename T>
struct TinyModel {
  ModelSpec spec;
  ParameterLayout layout;
  std::vector<T> weights;

  TinyModel(Head head, bool tied, std::uint64_t seed = 7)
      : TinyModel(tiny_spec(tied), head, seed) {}

  TinyModel(const ModelSpec& shape, Head head, std::uint64_t seed = 7) : spec(shape) {
    layout = build_parameter_layout(spec, head);
    std::vector<float> initial(static_cast<std::size_t>(layout.total));
    initialise_parameters(spec, layout, seed, initial);
    weights.assign(initial.begin(), initial.end());
    // Norms and a scalar head start at constants; move them off.
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] += static_cast<T>(0.1) * static_cast<T>(static_cast<double>(i * 37 % 19) / 19.0);
    }
  }

  Model<T> model() const { return {&spec, &layout, weights}; }
  Model<T> with_weights(const std::vector<T>& other) const { return {&spec, &layout, other}; }
};

/// Three sequences, one of a single token.
inline PackedBatch tiny_batch() {
  PackedBatch batch;
  append_sequence(batch, std::vector<std::int32_t>{3, 1, 4, 1, 5});
  append_sequence(batch, std::vector<std::int32_t>{9});
  append_sequence(batch, std::vector<std::int32_t>{2, 6, 10, 3});
  return batch;
}

}  // namespace rpeg
