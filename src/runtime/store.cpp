#include "runtime/store.h"

#include <fmt/format.h>

#include <algorithm>

#include "rpeg/base/error.h"
#include "runtime/message.h"

namespace rpeg {
namespace {

std::optional<std::vector<float>> SequenceData::* numbers_member(Payload payload) {
  switch (payload) {
    case Payload::kValues:
      return &SequenceData::values;
    case Payload::kRefLogprobs:
      return &SequenceData::ref_logprobs;
    case Payload::kActorLogprobs:
      return &SequenceData::actor_logprobs;
    case Payload::kRollout:
    case Payload::kScore:
      break;
  }
  throw Error(ErrorKind::kInternal, "payload is not one number per token");
}

const SequenceData& data_of(const IterationData& data, std::int64_t sequence) {
  const auto found = data.sequences.find(sequence);
  if (found == data.sequences.end()) {
    throw Error(ErrorKind::kInternal, fmt::format("no data of sequence {} on this rank", sequence));
  }
  return found->second;
}

/// Bits of a rollout's second number: a response that was given, not generated, has no
/// log-probabilities.
constexpr std::int32_t kStopped = 1;
constexpr std::int32_t kGiven = 2;

void append_rollout(Bytes& out, const Rollout& rollout) {
  const bool is_given = rollout.logprobs.empty();
  append_value(out, static_cast<std::int32_t>(rollout.tokens.size()));
  append_value(out, (rollout.stopped ? kStopped : 0) | (is_given ? kGiven : 0));
  append_bytes(out, std::span<const std::int32_t>(rollout.tokens));
  append_bytes(out, std::span<const float>(rollout.logprobs));
}

Rollout take_rollout(MessageReader& reader) {
  Rollout rollout;
  const auto length = static_cast<std::size_t>(reader.take<std::int32_t>());
  const auto flags = reader.take<std::int32_t>();
  rollout.stopped = (flags & kStopped) != 0;
  rollout.tokens = reader.take_vector<std::int32_t>(length);
  if ((flags & kGiven) == 0) {
    rollout.logprobs = reader.take_vector<float>(length);
  }
  return rollout;
}

}  // namespace

const Rollout& rollout_of(const IterationData& data, std::int64_t sequence) {
  const SequenceData& entry = data_of(data, sequence);
  check(entry.rollout.has_value(), "sequence without a rollout on this rank");
  return *entry.rollout;
}

double score_of(const IterationData& data, std::int64_t sequence) {
  const SequenceData& entry = data_of(data, sequence);
  check(entry.score.has_value(), "sequence without a score on this rank");
  return *entry.score;
}

const std::vector<float>& numbers_of(const IterationData& data,
                                     std::int64_t sequence,
                                     Payload payload) {
  const auto& numbers = data_of(data, sequence).*numbers_member(payload);
  check(numbers.has_value(), "sequence without values or log-probabilities on this rank");
  return *numbers;
}

std::vector<std::int64_t> sequence_list(std::span<const SequenceRange> ranges) {
  std::vector<std::int64_t> list;
  for (const SequenceRange& range : ranges) {
    for (std::int64_t s = range.first; s < range.last; ++s) {
      list.push_back(s);
    }
  }
  return list;
}

std::vector<std::int64_t> sequences_of(const IterationData& data,
                                       const Instruction& instruction,
                                       std::int32_t stage) {
  if (instruction.slots.empty()) {
    return sequence_list(instruction.sequences);
  }
  const std::vector<SequenceRange>& named = instruction.sequences;
  std::vector<std::int64_t> sequences;
  for (const std::int64_t slot : sequence_list(instruction.slots)) {
    const auto found = data.slots.find({stage, slot});
    check(found != data.slots.end(),
          fmt::format("slot {} of stage {} is not known on this rank", slot, stage));
    const std::int64_t s = found->second;
    if (named.empty() || std::ranges::any_of(named, [&](const SequenceRange& range) {
          return range.first <= s && s < range.last;
        })) {
      sequences.push_back(s);
    }
  }
  return sequences;
}

Bytes encode_payload(const IterationData& data,
                     Payload payload,
                     std::span<const std::int64_t> sequences) {
  Bytes message;
  for (const std::int64_t s : sequences) {
    append_value(message, static_cast<std::int32_t>(s));
    switch (payload) {
      case Payload::kRollout:
        append_rollout(message, rollout_of(data, s));
        break;
      case Payload::kScore:
        append_value(message, score_of(data, s));
        break;
      case Payload::kValues:
      case Payload::kRefLogprobs:
      case Payload::kActorLogprobs:
        append_bytes(message, std::span<const float>(numbers_of(data, s, payload)));
        break;
    }
  }
  return message;
}

std::vector<std::int64_t> decode_payload(const Bytes& message,
                                         Payload payload,
                                         IterationData& data) {
  MessageReader reader(message);
  std::vector<std::int64_t> sequences;
  while (reader.remaining() > 0) {
    const std::int64_t s = reader.take<std::int32_t>();
    sequences.push_back(s);
    SequenceData& entry = data.sequences[s];
    switch (payload) {
      case Payload::kRollout:
        entry.rollout = take_rollout(reader);
        break;
      case Payload::kScore:
        entry.score = reader.take<double>();
        break;
      case Payload::kValues:
      case Payload::kRefLogprobs:
      case Payload::kActorLogprobs:
        entry.*numbers_member(payload) =
            reader.take_vector<float>(rollout_of(data, s).tokens.size());
        break;
    }
  }
  return sequences;
}

}  // namespace rpeg
