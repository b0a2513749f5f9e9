#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "trace/check_context.h"
#include "trace/messages.h"

namespace rpeg {
namespace {

/// Online DPO infers the reference of the two sequences of a prompt that it trains on; which they
/// are is decided by rewards, which the trace does not hold.
bool holds_chosen_pairs(const Job& job, const Instruction& instruction) {
  const PolicySpec& policy = job.inputs.policy;
  return policy.algorithm == Algorithm::kDpo && policy.dpo_mode == DpoMode::kOnline &&
         instruction.payload == Payload::kRefLogprobs;
}

/// Bytes of a data message by the recorded lengths. Nothing when not all of them are recorded.
std::optional<std::int64_t> implied_bytes(const CheckContext& context,
                                          const Instruction& instruction,
                                          std::int64_t iteration) {
  const auto content = sequences_of(context, instruction, iteration);
  if (!content || holds_chosen_pairs(context.job, instruction)) {
    return std::nullopt;
  }
  std::int64_t bytes = 0;
  for (const TracedSequence& sequence : *content) {
    bytes += message_capacity_bytes(instruction.payload, 1, sequence.response_tokens);
  }
  return bytes;
}

void check_data_bytes(CheckContext& context, const TraceEvent& event) {
  const Instruction& instruction = context.instruction(event);
  if (event.bytes < 0 || event.bytes > instruction.capacity_bytes) {
    context.add("bytes",
                fmt::format("{}: {} bytes, more than the {} that were compiled for it",
                            event_text(event),
                            event.bytes,
                            instruction.capacity_bytes));
    return;
  }
  const auto implied = implied_bytes(context, instruction, event.iteration);
  if (implied && event.bytes != *implied) {
    context.add("bytes",
                fmt::format("{}: {} bytes; the recorded lengths make it {}",
                            event_text(event),
                            event.bytes,
                            *implied));
  }
}

/// Weights move in full. A receive in the first `delta` iterations has nothing to receive: those
/// run on the initial weights (of a resumed run they may be on hand).
void check_weight_bytes(CheckContext& context, const TraceEvent& event) {
  const Instruction& instruction = context.instruction(event);
  const WeightTransfer& transfer =
      context.job.transfers[static_cast<std::size_t>(instruction.transfer)];
  const std::int64_t compiled =
      transfer.messages[static_cast<std::size_t>(instruction.message)].bytes;
  const bool receives = instruction.kind == InstructionKind::kReceiveWeights;
  const bool is_first = receives && event.iteration < transfer.delta;
  const bool may_be_on_hand = receives && event.iteration < context.first + transfer.delta;
  const std::int64_t due = is_first ? 0 : compiled;
  if (event.bytes != due && !(may_be_on_hand && event.bytes == 0)) {
    context.add(
        "bytes",
        fmt::format(
            "{}: {} bytes of weights; compiled were {}", event_text(event), event.bytes, due));
  }
}

void check_bytes(CheckContext& context, const TraceEvent& event) {
  switch (context.instruction(event).kind) {
    case InstructionKind::kGenerate:
    case InstructionKind::kInfer:
    case InstructionKind::kTrain:
      if (event.bytes != 0) {
        context.add("bytes",
                    fmt::format("{}: {} bytes; it is no message", event_text(event), event.bytes));
      }
      break;
    case InstructionKind::kSend:
    case InstructionKind::kReceive:
      check_data_bytes(context, event);
      break;
    case InstructionKind::kSendWeights:
    case InstructionKind::kReceiveWeights:
      check_weight_bytes(context, event);
      break;
  }
}

void check_pair(CheckContext& context, const TraceEvent& sent, const TraceEvent& received) {
  if (sent.bytes != received.bytes) {
    context.add("bytes",
                fmt::format("sent {} bytes, received {}: {}; and {}",
                            sent.bytes,
                            received.bytes,
                            event_text(sent),
                            event_text(received)));
  }
  const double tolerance_s = context.tolerance_s(sent.rank, received.rank);
  // The receive of weights starts when the sender's clock says so, which nobody has corrected.
  const double there_s = received.kind == to_string(InstructionKind::kReceiveWeights)
                             ? received.end_s
                             : received.start_s;
  if (!(there_s >= sent.start_s - tolerance_s)) {
    context.add("causality",
                fmt::format("received before it was sent, clocks being right within {:.9f} s: {}; "
                            "and {}",
                            tolerance_s,
                            event_text(received),
                            event_text(sent)));
  }
}

}  // namespace

void check_messages(CheckContext& context) {
  for (const auto& rank : context.events) {
    for (const TraceEvent* event : rank) {
      if (event != nullptr) {
        check_bytes(context, *event);
      }
    }
  }
  const std::vector<MessagePair> pairs = message_pairs(context.job);
  for (const MessagePair& pair : pairs) {
    for (std::int64_t iteration = context.first; iteration < context.last; ++iteration) {
      const TraceEvent* sent = context.event(pair.from, pair.send, iteration);
      const TraceEvent* received = context.event(pair.to, pair.receive, iteration + pair.delta);
      if (sent != nullptr && received != nullptr) {
        check_pair(context, *sent, *received);
      }
    }
  }
}

}  // namespace rpeg
