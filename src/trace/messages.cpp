#include "trace/messages.h"

#include <map>
#include <tuple>

namespace rpeg {

std::vector<MessagePair> message_pairs(const Job& job) {
  std::map<std::tuple<int, int, int, int>, std::size_t> sends;  // from, to, tag, message
  const auto for_each = [&](auto visit) {
    for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
      const auto& program = job.ranks[rank].program;
      for (std::size_t i = 0; i < program.size(); ++i) {
        visit(static_cast<int>(rank), i, program[i]);
      }
    }
  };
  for_each([&](int rank, std::size_t i, const Instruction& step) {
    if (step.kind == InstructionKind::kSend || step.kind == InstructionKind::kSendWeights) {
      sends[{rank, step.peer, step.tag, step.message}] = i;
    }
  });
  std::vector<MessagePair> pairs;
  for_each([&](int rank, std::size_t i, const Instruction& step) {
    const bool brings_weights = step.kind == InstructionKind::kReceiveWeights;
    if (step.kind != InstructionKind::kReceive && !brings_weights) {
      return;
    }
    const auto found = sends.find({step.peer, rank, step.tag, step.message});
    if (found != sends.end()) {
      const std::int64_t delta =
          brings_weights ? job.transfers[static_cast<std::size_t>(step.transfer)].delta : 0;
      pairs.push_back({step.peer, rank, found->second, i, delta});
    }
  });
  return pairs;
}

}  // namespace rpeg
