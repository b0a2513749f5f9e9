#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rpeg/model/generate.h"

namespace rpeg {

/// Buffers of `sample_token`, reused from token to token.
struct SamplerScratch {
  std::vector<std::uint32_t> words;
  std::vector<double> noise;             // (V)
  std::vector<std::int32_t> candidates;  // (V)
};

/// Returns the token of `request` at `position`, given (logits - maximum) / temperature (V).
std::int32_t sample_token(const SamplingOptions& options,
                          const GenerationRequest& request,
                          std::int64_t position,
                          std::span<const float> relative_logits,
                          SamplerScratch& scratch);

}  // namespace rpeg
