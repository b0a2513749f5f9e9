#include "runtime/executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "rpeg/base/error.h"
#include "rpeg/job/tasks.h"
#include "runtime/generation.h"
#include "runtime/inference.h"
#include "runtime/training.h"

namespace rpeg {
namespace {

/// What an instruction did, besides taking time.
struct Effect {
  std::int64_t bytes = 0;
  std::int64_t version = -1;  ///< read by compute, carried by a message
  std::int64_t written = -1;  ///< made by training
  double ready_s = 0.0;       ///< waiting until then, for a sender or a group, is not its time
};

const WeightTransfer& transfer_of(const Job& job, const Instruction& instruction) {
  return job.transfers.at(static_cast<std::size_t>(instruction.transfer));
}

const WeightMessage& message_of(const Job& job, const Instruction& instruction) {
  return transfer_of(job, instruction).messages.at(static_cast<std::size_t>(instruction.message));
}

Effect send_data(RankContext& context, const Instruction& instruction, std::int64_t iteration) {
  Bytes message =
      encode_payload(context.data.at(iteration), instruction.payload, instruction.sequences);
  const auto bytes = static_cast<std::int64_t>(message.size());
  context.world.send(instruction.peer, instruction.tag, std::move(message));
  return {.bytes = bytes};
}

Effect receive_data(RankContext& context, const Instruction& instruction, std::int64_t iteration) {
  const Bytes message = context.world.receive(instruction.peer, instruction.tag);
  const double ready_s = context.clock.now_s();
  decode_payload(message, instruction.payload, instruction.sequences, context.data.at(iteration));
  return {.bytes = static_cast<std::int64_t>(message.size()), .ready_s = ready_s};
}

Effect send_weights(RankContext& context, const Instruction& instruction) {
  const WeightTransfer& transfer = transfer_of(context.job, instruction);
  const WeightMessage& message = message_of(context.job, instruction);
  const HeldModel& model = context.models.at(transfer.from);
  context.world.send(instruction.peer,
                     instruction.tag,
                     encode_weights(transfer, message, model, context.clock.now_s()));
  return {.bytes = message.bytes, .version = model.version};
}

Effect receive_weights(RankContext& context,
                       const Instruction& instruction,
                       std::int64_t iteration) {
  const WeightTransfer& transfer = transfer_of(context.job, instruction);
  if (iteration < transfer.delta) {
    return {.version = 0};  // the first iterations run on the initial weights
  }
  const WeightMessage& message = message_of(context.job, instruction);
  const Bytes bytes = context.world.receive(instruction.peer, instruction.tag);
  const auto expected =
      std::count_if(transfer.messages.begin(), transfer.messages.end(), [&](const auto& other) {
        return other.to == context.world.rank();
      });
  const WeightHeader header = decode_weights(
      transfer, message, bytes, static_cast<std::size_t>(expected), context.models.at(transfer.to));
  return {.bytes = message.bytes, .version = header.version, .ready_s = header.sent_s};
}

Effect train(RankContext& context, const Instruction& instruction, std::int64_t iteration) {
  context.groups_of(instruction.vertex).all->barrier();
  const double ready_s = context.clock.now_s();
  train_vertex(context, instruction, iteration);
  return {.version = iteration, .written = iteration + 1, .ready_s = ready_s};
}

Effect execute(RankContext& context, const Instruction& instruction, std::int64_t iteration) {
  switch (instruction.kind) {
    case InstructionKind::kGenerate:
      generate_sequences(context, instruction, iteration);
      break;
    case InstructionKind::kInfer:
      infer_sequences(context, instruction, iteration);
      break;
    case InstructionKind::kTrain:
      return train(context, instruction, iteration);
    case InstructionKind::kSend:
      return send_data(context, instruction, iteration);
    case InstructionKind::kReceive:
      return receive_data(context, instruction, iteration);
    case InstructionKind::kSendWeights:
      return send_weights(context, instruction);
    case InstructionKind::kReceiveWeights:
      return receive_weights(context, instruction, iteration);
  }
  return {.version = context.model(instruction.vertex).version};
}

/// Adds an instruction's seconds to its task. Data messages belong to no task: their sending takes
/// no time and their receiving is waiting for the producer.
void count_time(Report& report,
                const std::vector<std::string>& tasks,
                const std::string& task,
                double seconds) {
  report.task_s.resize(tasks.size());
  const auto found = std::find(tasks.begin(), tasks.end(), task);
  if (found != tasks.end()) {
    report.task_s[static_cast<std::size_t>(found - tasks.begin())] += seconds;
  }
}

/// The sequences that a generation instruction finished.
TracedRollouts rollout_record(const RankContext& context,
                             const Instruction& instruction,
                             std::int64_t iteration,
                             std::size_t position) {
  const IterationData& data = context.data.at(iteration);
  TracedRollouts record{.iteration = iteration,
                       .rank = context.world.rank(),
                       .instruction = static_cast<std::int32_t>(position),
                       .sequences = {},
                       .verifier_s = 0.0};
  for (const std::int64_t s : sequence_list(instruction.sequences)) {
    record.sequences.push_back(
        {.sequence = s,
         .prompt_tokens = static_cast<std::int64_t>(context.prompt(data, s).tokens.size()),
         .response_tokens = static_cast<std::int64_t>(rollout_of(data, s).tokens.size())});
  }
  return record;
}

bool is_data_message(InstructionKind kind) {
  return kind == InstructionKind::kSend || kind == InstructionKind::kReceive;
}

}  // namespace

void run_program(RankContext& context, std::int64_t iteration, TraceWriter* trace) {
  const int rank = context.world.rank();
  const auto& program = context.job.ranks.at(static_cast<std::size_t>(rank)).program;
  const std::vector<std::string> tasks = task_names(context.job);
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Instruction& instruction = program[i];
    const std::string task = task_of(context.job, instruction);
    const std::string where =
        fmt::format("{} {}, iteration {}", to_string(instruction.kind), task, iteration);
    context.world.set_context(where);
    const double reached_s = context.clock.now_s();
    const Effect effect = execute(context, instruction, iteration);
    const double end_s = context.clock.now_s();
    const double start_s = std::clamp(effect.ready_s, reached_s, end_s);
    if (!is_data_message(instruction.kind)) {
      count_time(context.reports[iteration], tasks, task, end_s - start_s);
    }
    if (trace != nullptr) {
      trace->add({.iteration = iteration,
                  .rank = rank,
                  .instruction = static_cast<std::int32_t>(i),
                  .kind = to_string(instruction.kind),
                  .vertex = task,
                  .start_s = start_s,
                  .end_s = end_s,
                  .bytes = effect.bytes,
                  .peer = instruction.peer,
                  .version = effect.version,
                  .written = effect.written,
                  .waited_s = start_s - reached_s});
      if (instruction.kind == InstructionKind::kGenerate) {
        trace->add(rollout_record(context, instruction, iteration, i));
      }
    }
  }
}

}  // namespace rpeg
