#include "runtime/pairs.h"

#include "rpeg/base/error.h"
#include "rpeg/loss/dpo_loss.h"

namespace rpeg {
namespace {

bool is_offline(const WorkloadConfig& inputs) {
  return inputs.policy.algorithm == Algorithm::kDpo && inputs.policy.dpo_mode == DpoMode::kOffline;
}

}  // namespace

std::int64_t sequences_per_prompt(const WorkloadConfig& inputs) {
  return job_sequences(inputs) / inputs.workload.batch_size;
}

std::vector<SequencePair> preference_pairs(const WorkloadConfig& inputs,
                                           const IterationData& data,
                                           std::span<const std::int64_t> sequences) {
  const auto size = static_cast<std::size_t>(sequences_per_prompt(inputs));
  check(sequences.size() % size == 0, "preference pairs of a part of a prompt's samples");
  std::vector<SequencePair> pairs;
  for (std::size_t i = 0; i < sequences.size(); i += size) {
    const std::int64_t first = sequences[i];
    const std::int64_t unit = first / static_cast<std::int64_t>(size);
    if (is_offline(inputs)) {
      pairs.push_back({unit, first, first + 1});
      continue;
    }
    std::vector<double> scores;
    for (const std::int64_t s : sequences.subspan(i, size)) {
      scores.push_back(score_of(data, s));
    }
    if (const auto pair = best_against_worst(scores)) {
      pairs.push_back({unit, first + pair->chosen, first + pair->rejected});
    }
  }
  return pairs;
}

}  // namespace rpeg
