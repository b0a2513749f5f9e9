#include <fmt/format.h>

#include <algorithm>

#include "trace/check_context.h"

namespace rpeg {
namespace {

struct Versions {
  std::int64_t read = -1;
  std::int64_t written = -1;
};

/// Version v is made by v updates. The first iterations of a lagging copy run on version 0.
Versions expected_versions(const Job& job, const Instruction& instruction, std::int64_t iteration) {
  switch (instruction.kind) {
    case InstructionKind::kGenerate:
    case InstructionKind::kInfer: {
      const WeightCopy& copy = copy_of(job, instruction.vertex);
      return {.read = copy.is_frozen ? 0 : std::max<std::int64_t>(0, iteration - copy.tau)};
    }
    case InstructionKind::kTrain:
      return {.read = iteration, .written = iteration + 1};
    case InstructionKind::kSendWeights:
      return {.read = iteration + 1};
    case InstructionKind::kReceiveWeights: {
      const auto& transfer = job.transfers[static_cast<std::size_t>(instruction.transfer)];
      return {.read = std::max<std::int64_t>(0, iteration + 1 - transfer.delta)};
    }
    case InstructionKind::kSend:
    case InstructionKind::kReceive:
      break;
  }
  return {};
}

}  // namespace

void check_versions(CheckContext& context) {
  for (std::size_t rank = 0; rank < context.job.ranks.size(); ++rank) {
    for (const TraceEvent* event : context.events[rank]) {
      if (event == nullptr) {
        continue;
      }
      const Instruction& instruction = context.instruction(*event);
      const Versions due = expected_versions(context.job, instruction, event->iteration);
      if (event->version != due.read || event->written != due.written) {
        context.add(
            "version",
            fmt::format("{}: it read version {} and wrote {}; due were {} and {} (-1: none)",
                        event_text(*event),
                        event->version,
                        event->written,
                        due.read,
                        due.written));
      }
    }
  }
}

}  // namespace rpeg
