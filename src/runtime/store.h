#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "rpeg/comm/comm.h"
#include "rpeg/job/job.h"

namespace rpeg {

/// What generation made of one sequence.
struct Rollout {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;  ///< behaviour log-probabilities; none of responses that were given
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

/// The data of one iteration on one rank, by global sequence index. Complete on leaders only; the
/// other ranks of a replica hold what their leader shared.
struct IterationData {
  std::vector<std::int64_t> prompts;  ///< dataset index of each prompt of the batch
  std::map<std::int64_t, SequenceData> sequences;
  /// Which sequence is in a slot of a stage of cut generation: (stage, slot) → sequence.
  std::map<std::pair<std::int32_t, std::int64_t>, std::int64_t> slots;
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

/// The sequences that an instruction of a vertex of stage `stage` is about, on a leader: those of
/// its ranges; of a chunk or of its messages those that are in its slots and, when it names
/// sequences, among them, in the order of the slots.
std::vector<std::int64_t> sequences_of(const IterationData& data,
                                       const Instruction& instruction,
                                       std::int32_t stage);

/// The records of `payload` for some sequences (format: `Payload`), each with the index of its
/// sequence.
Bytes encode_payload(const IterationData& data,
                     Payload payload,
                     std::span<const std::int64_t> sequences);
/// Reads them into `data` and returns their sequences, in order. Numbers of response tokens come
/// after the rollout they belong to.
std::vector<std::int64_t> decode_payload(const Bytes& message,
                                         Payload payload,
                                         IterationData& data);

}  // namespace rpeg
