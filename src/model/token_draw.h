#pragma once

/// From the last stage's hidden rows to tokens, over the parts of the vocabulary that the
/// tensor-parallel ranks hold.

#include <cstdint>
#include <span>
#include <vector>

#include "model/sampler.h"
#include "rpeg/model/generate.h"

namespace rpeg {

/// One token to draw. Several samples of a prompt share the row of its last token.
struct DrawPlace {
  std::int64_t row = 0;
  const GenerationRequest* request = nullptr;
  std::int64_t position = 0;  ///< of the new token in its sequence, prompt included
};

struct DrawnToken {
  std::int32_t token = 0;
  float logprob = 0.0F;  ///< log softmax(logits / temperature)[token]
};

/// Reused from draw to draw.
struct DrawScratch {
  std::vector<float> storage;
  std::vector<float> whole_rows;
  SamplerScratch sampler;
};

/// Draws one token for each of `places`, in ascending order of row, from `normed` (rows, h), the
/// output of the final norm, and appends them to `drawn`. All tensor-parallel ranks of the stage
/// call it together and draw the same tokens. Logits are formed in blocks of rows; with top-k or
/// top-p the ranks exchange them. Throws kRuntime naming the iteration when logits are not finite.
void draw_tokens(const Model<float>& model,
                 const SamplingOptions& options,
                 std::int64_t rows,
                 const float* normed,
                 std::span<const DrawPlace> places,
                 DrawScratch& scratch,
                 std::vector<DrawnToken>& drawn);

}  // namespace rpeg
