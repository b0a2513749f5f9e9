#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "rpeg/comm/comm.h"
#include "rpeg/job/job.h"

namespace rpeg {

/// What generation made of one sequence.
struct Rollout {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;  ///< behaviour log-probabilities
  bool stopped = false;
};

/// Everything a rank knows about one sequence of an iteration.
struct SequenceData {
  std::optional<Rollout> rollout;
  std::optional<double> score;
  std::optional<std::vector<float>> values;
  std::optional<std::vector<float>> ref_logprobs;
  std::optional<std::vector<float>> actor_logprobs;
};

/// The data of one iteration on one rank, by global sequence index.
struct IterationData {
  std::vector<std::int64_t> prompts;  ///< dataset index of each prompt of the batch
  std::map<std::int64_t, SequenceData> sequences;
};

/// The data of a sequence, with a part that an instruction needs; a missing part is an invariant
/// that the compiler proved, broken.
const Rollout& rollout_of(const IterationData& data, std::int64_t sequence);
double score_of(const IterationData& data, std::int64_t sequence);
const std::vector<float>& numbers_of(const IterationData& data,
                                     std::int64_t sequence,
                                     Payload payload);

/// All sequences of some ranges, in order.
std::vector<std::int64_t> sequence_list(std::span<const SequenceRange> ranges);

/// The message of `payload` for `ranges` (format: `Payload`), and its reading on the other side.
Bytes encode_payload(const IterationData& data,
                     Payload payload,
                     std::span<const SequenceRange> ranges);
void decode_payload(const Bytes& message,
                    Payload payload,
                    std::span<const SequenceRange> ranges,
                    IterationData& data);

}  // namespace rpeg
