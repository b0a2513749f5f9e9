#pragma once

/// One rank's part of the forward passes of generation: the layers of its stage over some rows,
/// with a KV cache; then the hidden states go to the next stage, or the last stage draws tokens.

#include <cstdint>
#include <span>
#include <vector>

#include "model/token_draw.h"
#include "model/trunk.h"
#include "rpeg/model/generate.h"

namespace rpeg {

/// A sequence on its way: rows [first, first + length) of each layer's cache are filled, or will be
/// by the pass that it is in.
struct LiveSequence {
  std::size_t request = 0;
  std::size_t place = 0;   ///< of the cache, given back when the sequence ends
  std::int64_t first = 0;  ///< the place's first row
  std::int64_t length = 0;
  std::int32_t next = 0;  ///< the last token drawn, not yet in the cache
};

/// What a rank needs for its passes.
struct GenerationPasses {
  Model<float> model;
  LocalShape shape;
  std::vector<GenerationRequest> requests;
  SamplingOptions sampling;
  std::int64_t cache_rows = 0;   ///< of one layer
  std::vector<float> cache{};    ///< (layers of the stage, cache_rows, 2 n d)
  std::vector<float> angles{};   ///< cosine, then sine, each (positions, d / 2)
  std::vector<float> storage{};  ///< activations of one pass
  DrawScratch draw{};

  bool is_first() const { return model.layout->shard.has_embedding; }
  bool is_last() const { return model.layout->shard.has_head; }
};

/// Makes room in the cache and fills the table of angles for sequences of up to `longest` tokens.
void prepare_passes(GenerationPasses& passes, std::int64_t cache_rows, std::int64_t longest);

/// Computes the prompts of `sequences` (once in a run of equal ones) and fills their cache. The
/// last stage appends their first tokens to `drawn`, in order.
void prefill(GenerationPasses& passes,
             std::span<const LiveSequence> sequences,
             std::vector<DrawnToken>& drawn);

/// Takes every sequence one token further: `next` enters the cache as row length - 1. The last
/// stage appends the tokens that follow to `drawn`, in order.
void decode(GenerationPasses& passes,
            std::span<const LiveSequence> sequences,
            std::vector<DrawnToken>& drawn);

}  // namespace rpeg
