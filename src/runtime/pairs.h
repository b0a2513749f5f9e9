#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/store.h"

namespace rpeg {

/// Two sequences of an iteration that DPO compares; `unit` is the index of their prompt in the
/// batch.
struct SequencePair {
  std::int64_t unit = 0;
  std::int64_t chosen = 0;
  std::int64_t rejected = 0;
};

/// Sequences of a prompt: its samples; of offline DPO the chosen and the rejected response.
std::int64_t sequences_per_prompt(const WorkloadConfig& inputs);

/// The pairs among `sequences` (whole units, ascending): offline all, sequence 2u against 2u + 1;
/// online the best sample of a prompt against its worst by the scores in `data`, none where all
/// scores are equal.
std::vector<SequencePair> preference_pairs(const WorkloadConfig& inputs,
                                           const IterationData& data,
                                           std::span<const std::int64_t> sequences);

}  // namespace rpeg
