#include "runtime/store.h"

#include <fmt/format.h>

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

void append_rollout(Bytes& out, const Rollout& rollout) {
  append_value(out, static_cast<std::int32_t>(rollout.tokens.size()));
  append_value(out, static_cast<std::int32_t>(rollout.stopped));
  append_bytes(out, std::span<const std::int32_t>(rollout.tokens));
  append_bytes(out, std::span<const float>(rollout.logprobs));
}

Rollout take_rollout(MessageReader& reader) {
  Rollout rollout;
  const auto length = static_cast<std::size_t>(reader.take<std::int32_t>());
  rollout.stopped = reader.take<std::int32_t>() != 0;
  rollout.tokens = reader.take_vector<std::int32_t>(length);
  rollout.logprobs = reader.take_vector<float>(length);
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

Bytes encode_payload(const IterationData& data,
                     Payload payload,
                     std::span<const SequenceRange> ranges) {
  Bytes message;
  for (const std::int64_t s : sequence_list(ranges)) {
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

void decode_payload(const Bytes& message,
                    Payload payload,
                    std::span<const SequenceRange> ranges,
                    IterationData& data) {
  MessageReader reader(message);
  for (const std::int64_t s : sequence_list(ranges)) {
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
  check(reader.remaining() == 0, "message longer than its content");
}

}  // namespace rpeg
