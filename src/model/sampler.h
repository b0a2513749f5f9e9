#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "rpeg/model/generate.h"

namespace rpeg {

/// Buffers of `best_candidate`, reused from token to token.
struct SamplerScratch {
  std::vector<std::uint32_t> words;
  std::vector<double> noise;             // (V)
  std::vector<std::int32_t> candidates;  // (V)
};

/// A token that may be drawn. The drawn one has the largest score, the lowest id among equals.
struct Candidate {
  double score = -std::numeric_limits<double>::infinity();  ///< relative logit + Gumbel noise
  float relative_logit = 0.0F;                              ///< (logit - maximum) / temperature
  std::int32_t token = -1;                                  ///< -1: none
};

/// Whether top-k or top-p cut tokens off: the choice then needs the logits of the whole vocabulary.
bool is_truncated(const SamplingOptions& options);

/// Returns the best of the tokens first_token, first_token + 1, … for place `position` of
/// `request`, given their (logits - maximum) / temperature; with truncation, which needs the whole
/// vocabulary, the best of those that are kept.
Candidate best_candidate(const SamplingOptions& options,
                         const GenerationRequest& request,
                         std::int64_t position,
                         std::int32_t first_token,
                         std::span<const float> relative_logits,
                         SamplerScratch& scratch);

}  // namespace rpeg
