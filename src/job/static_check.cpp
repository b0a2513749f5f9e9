#include "job/static_check.h"

#include <fmt/format.h>

#include "job/layout.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorKind::kUsage, message); }

bool is_compute(InstructionKind kind) {
  return kind == InstructionKind::kGenerate || kind == InstructionKind::kInfer ||
         kind == InstructionKind::kTrain;
}

bool is_weights(InstructionKind kind) {
  return kind == InstructionKind::kSendWeights || kind == InstructionKind::kReceiveWeights;
}

bool fits(int value, std::size_t size) {
  return value >= 0 && static_cast<std::size_t>(value) < size;
}

void check_weights_instruction(const Job& job, int rank, std::size_t at) {
  const Instruction& instruction = job.ranks[static_cast<std::size_t>(rank)].program[at];
  const bool known =
      fits(instruction.transfer, job.transfers.size()) &&
      fits(instruction.message,
           job.transfers[static_cast<std::size_t>(instruction.transfer)].messages.size());
  if (!known) {
    fail(fmt::format("{}: there is no message {} of transfer {}",
                     describe(job, rank, at),
                     instruction.message,
                     instruction.transfer));
  }
  const WeightMessage& message = job.transfers[static_cast<std::size_t>(instruction.transfer)]
                                     .messages[static_cast<std::size_t>(instruction.message)];
  const bool sends = instruction.kind == InstructionKind::kSendWeights;
  const int from = sends ? rank : instruction.peer;
  const int to = sends ? instruction.peer : rank;
  if (message.from != from || message.to != to) {
    fail(fmt::format("{}: the message goes from rank {} to rank {}",
                     describe(job, rank, at),
                     message.from,
                     message.to));
  }
}

void check_instruction(const Job& job, int rank, std::size_t at) {
  const Instruction& instruction = job.ranks[static_cast<std::size_t>(rank)].program[at];
  if (index(instruction.vertex) >= job.graph.vertices.size()) {
    fail(fmt::format("rank {}, instruction {}: unknown vertex", rank, at));
  }
  if (is_compute(instruction.kind)) {
    return;
  }
  if (!fits(instruction.peer, job.ranks.size()) ||
      (instruction.peer == rank && !is_weights(instruction.kind))) {
    fail(fmt::format(
        "{}: the job has ranks 0 to {}", describe(job, rank, at), job.ranks.size() - 1));
  }
  if (is_weights(instruction.kind)) {
    check_weights_instruction(job, rank, at);
  }
}

/// The only place where the rank's program computes the vertex.
void check_replica(
    const Job& job, VertexId vertex, int rank, int replica, const ReplicaWork& work) {
  const std::string& name = job.graph.vertices[index(vertex)].name;
  const auto& program = job.ranks[static_cast<std::size_t>(rank)].program;
  int found = 0;
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (!is_compute(program[i].kind) || program[i].vertex != vertex) {
      continue;
    }
    ++found;
    if (ReplicaWork{program[i].sequences, program[i].slots} != work) {
      fail(fmt::format("{}: these are not the sequences or slots of replica {} of {}",
                       describe(job, rank, i),
                       replica,
                       name));
    }
  }
  if (found != 1) {
    fail(
        fmt::format("rank {} computes {} {} times in an iteration; it runs replica {} and must do "
                    "so once, like the other ranks of the vertex",
                    rank,
                    name,
                    found,
                    replica));
  }
}

}  // namespace

std::string describe(const Job& job, int rank, std::size_t at) {
  const Instruction& instruction = job.ranks[static_cast<std::size_t>(rank)].program[at];
  const std::string& name = job.graph.vertices[index(instruction.vertex)].name;
  std::string what;
  switch (instruction.kind) {
    case InstructionKind::kGenerate:
    case InstructionKind::kInfer:
    case InstructionKind::kTrain:
      what = fmt::format("{} {}", to_string(instruction.kind), name);
      break;
    case InstructionKind::kSend:
    case InstructionKind::kReceive:
      what = fmt::format("{} {} of {} {} rank {}, tag {}",
                         to_string(instruction.kind),
                         to_string(instruction.payload),
                         name,
                         instruction.kind == InstructionKind::kSend ? "to" : "from",
                         instruction.peer,
                         instruction.tag);
      break;
    case InstructionKind::kSendWeights:
    case InstructionKind::kReceiveWeights:
      what = fmt::format("{} of {} {} rank {}, tag {}",
                         to_string(instruction.kind),
                         name,
                         instruction.kind == InstructionKind::kSendWeights ? "to" : "from",
                         instruction.peer,
                         instruction.tag);
      break;
  }
  return fmt::format("rank {}, instruction {} ({})", rank, at, what);
}

void check_static(const Job& job) {
  std::vector<std::size_t> computes(job.ranks.size(), 0);
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    for (std::size_t i = 0; i < job.ranks[rank].program.size(); ++i) {
      check_instruction(job, static_cast<int>(rank), i);
      computes[rank] += is_compute(job.ranks[rank].program[i].kind) ? 1U : 0U;
    }
  }
  for (std::size_t i = 0; i < job.graph.vertices.size(); ++i) {
    const VertexId vertex{static_cast<std::int32_t>(i)};
    const Block& block = block_of(job, vertex);
    for (int dp = 0; dp < block.parallelism.dp; ++dp) {
      const ReplicaWork work = replica_work(job, vertex, dp);
      for (const int rank : replica_ranks(block, dp)) {
        check_replica(job, vertex, rank, dp, work);
        --computes[static_cast<std::size_t>(rank)];
      }
    }
  }
  for (std::size_t rank = 0; rank < computes.size(); ++rank) {
    if (computes[rank] != 0) {
      fail(fmt::format("rank {} computes a vertex that is not placed on it", rank));
    }
  }
}

}  // namespace rpeg
