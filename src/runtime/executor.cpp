#include "runtime/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "rpeg/base/error.h"
#include "rpeg/job/tasks.h"
#include "runtime/evaluation.h"
#include "runtime/generation.h"
#include "runtime/inference.h"
#include "runtime/iteration.h"
#include "runtime/training.h"

namespace rpeg {
namespace {

/// What an instruction did, besides taking time.
struct Effect {
  std::int64_t bytes = 0;
  std::int64_t version = -1;  ///< read by compute, carried by a message
  std::int64_t written = -1;  ///< made by training
  double ready_s = 0.0;       ///< waiting until then, for a sender or a group, is not its time
  Generated generated{};
};

constexpr double kLeastTimeout_s = 60.0;
constexpr double kPredictedTimes = 50.0;  ///< time-out in predicted iterations
constexpr double kMeasuredTimes = 20.0;   ///< and in measured ones, whichever is longer

const WeightTransfer& transfer_of(const Job& job, const Instruction& instruction) {
  return job.transfers.at(static_cast<std::size_t>(instruction.transfer));
}

const WeightMessage& message_of(const Job& job, const Instruction& instruction) {
  return transfer_of(job, instruction).messages.at(static_cast<std::size_t>(instruction.message));
}

Effect send_data(RankContext& context, const Instruction& instruction, std::int64_t iteration) {
  Bytes message = encode_payload(
      context.data.at(iteration), instruction.payload, context.sequences(instruction, iteration));
  const auto bytes = static_cast<std::int64_t>(message.size());
  check(bytes <= instruction.capacity_bytes,
        fmt::format("a message of {} bytes where {} were compiled at most",
                    bytes,
                    instruction.capacity_bytes));
  context.world.send(instruction.peer, instruction.tag, std::move(message));
  return {.bytes = bytes};
}

Effect receive_data(RankContext& context, const Instruction& instruction, std::int64_t iteration) {
  const Bytes message = context.world.receive(instruction.peer, instruction.tag);
  const double ready_s = context.clock.now_s();
  IterationData& data = context.data.at(iteration);
  const auto sequences = decode_payload(message, instruction.payload, data);
  // A chunk learns from its rollouts which sequences are in its slots.
  if (instruction.payload == Payload::kRollout && instruction.sequences.empty()) {
    const std::vector<std::int64_t> slots = sequence_list(instruction.slots);
    check(slots.size() == sequences.size(), "another number of sequences than slots arrived");
    for (std::size_t i = 0; i < slots.size(); ++i) {
      data.slots[{context.vertex(instruction.vertex).stage, slots[i]}] = sequences[i];
    }
  }
  return {.bytes = static_cast<std::int64_t>(message.size()), .ready_s = ready_s};
}

Effect send_weights(RankContext& context, const Instruction& instruction) {
  const WeightTransfer& transfer = transfer_of(context.job, instruction);
  const WeightMessage& message = message_of(context.job, instruction);
  const HeldModel& model = context.models.at(transfer.from);
  // The message is a copy: training may go on while it travels.
  Bytes bytes = encode_weights(transfer, message, model, context.clock.now_s());
  context.world.send(instruction.peer, instruction.tag, std::move(bytes));
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
    case InstructionKind::kGenerate: {
      Generated generated = generate_sequences(context, instruction, iteration);
      return {.version = context.model(instruction.vertex).version,
              .generated = std::move(generated)};
    }
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

/// The sequences that an instruction was about, with their lengths.
TracedRollouts rollout_record(const RankContext& context,
                              std::span<const std::int64_t> sequences,
                              double verifier_s,
                              std::int64_t iteration,
                              std::size_t position) {
  const IterationData& data = context.data.at(iteration);
  TracedRollouts record{.iteration = iteration,
                        .rank = context.world.rank(),
                        .instruction = static_cast<std::int32_t>(position),
                        .sequences = {},
                        .verifier_s = verifier_s};
  for (const std::int64_t s : sequences) {
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

/// The walk of one rank through its program.
class Walk {
 public:
  Walk(RankContext& context, TraceWriter* trace)
      : context_(context),
        trace_(trace),
        program_(context.job.ranks.at(static_cast<std::size_t>(context.world.rank())).program),
        tasks_(task_names(context.job)) {
    for (const Instruction& instruction : program_) {
      largest_shift_ = std::max(largest_shift_, instruction.shift);
    }
  }

  std::int64_t run(RunControl& control, std::int64_t planned) {
    std::int64_t iterations = planned;
    for (std::int64_t period = 0; period < iterations + largest_shift_; ++period) {
      for (std::size_t i = 0; i < program_.size(); ++i) {
        const std::int64_t iteration = period - program_[i].shift;
        if (iteration < 0 || iteration >= iterations) {
          continue;
        }
        if (!flights_.contains(iteration) && !begin(control, iteration)) {
          iterations = iteration;
          continue;
        }
        step(i, iteration);
        if (++flights_.at(iteration).done == program_.size()) {
          end(control, iteration);
        }
      }
    }
    return iterations;
  }

  void drain(std::int64_t iterations) {
    std::int64_t longest = 0;
    for (const WeightTransfer& transfer : context_.job.transfers) {
      longest = std::max(longest, transfer.delta);
    }
    for (std::int64_t p = iterations; p < iterations + longest + largest_shift_; ++p) {
      for (std::size_t i = 0; i < program_.size(); ++i) {
        if (program_[i].kind != InstructionKind::kReceiveWeights) {
          continue;
        }
        const std::int64_t iteration = p - program_[i].shift;
        const std::int64_t delta = transfer_of(context_.job, program_[i]).delta;
        if (iteration >= iterations && iteration < iterations + delta) {
          step(i, iteration);
        }
      }
    }
  }

 private:
  /// An iteration that has begun on this rank and not ended.
  struct Flight {
    double start_s = 0.0;
    double evaluation_s = 0.0;
    std::size_t done = 0;  ///< instructions
  };

  bool begin(RunControl& control, std::int64_t iteration) {
    if (!control.start(iteration)) {
      return false;
    }
    const std::int64_t lead = control.lead();
    bool evaluates = false;  // some rank, in an iteration that is still running
    for (std::int64_t k = std::max<std::int64_t>(0, iteration - lead); k <= iteration; ++k) {
      evaluates = evaluates || evaluation_due(context_, k);
    }
    context_.world.set_timeout(wait_limit_s(context_.job, control.longest_iteration_s(), lead) *
                               (evaluates ? kUnpricedTimes : 1.0));
    flights_[iteration].start_s = context_.clock.now_s();
    context_.reports[iteration].task_s.resize(tasks_.size());
    context_.data[iteration] = begin_iteration(context_, iteration);
    for (const Instruction& instruction : program_) {
      if (instruction.kind == InstructionKind::kReceiveWeights &&
          iteration >= transfer_of(context_.job, instruction).delta) {
        context_.world.expect(instruction.peer, instruction.tag);
      }
    }
    return true;
  }

  void end(RunControl& control, std::int64_t iteration) {
    Report report = std::move(context_.reports.at(iteration));
    const Flight& flight = flights_.at(iteration);
    const double now_s = context_.clock.now_s();
    // Iterations that overlap share the time: each counts from the end of the one before it.
    report.iteration_s = now_s - std::max(flight.start_s, last_end_s_) - flight.evaluation_s;
    last_end_s_ = now_s;
    context_.reports.erase(iteration);
    context_.data.erase(iteration);
    flights_.erase(iteration);
    control.finish(iteration, std::move(report));
  }

  void step(std::size_t position, std::int64_t iteration) {
    const Instruction& instruction = program_[position];
    const std::string task = task_of(context_.job, instruction);
    context_.world.set_context(
        fmt::format("{} {}, iteration {}", to_string(instruction.kind), task, iteration));
    const double reached_s = context_.clock.now_s();
    const Effect effect = execute(context_, instruction, iteration);
    const double end_s = context_.clock.now_s();
    const double ready_s = std::max(effect.ready_s, reached_s + effect.generated.evaluation_s);
    const double start_s = std::clamp(ready_s, reached_s, end_s);
    const auto flight = flights_.find(iteration);
    if (flight != flights_.end()) {  // weights that arrive after the last iteration are of none
      flight->second.evaluation_s += effect.generated.evaluation_s;
      if (!is_data_message(instruction.kind)) {
        count_time(context_.reports.at(iteration), tasks_, task, end_s - start_s);
      }
    }
    if (trace_ != nullptr) {
      trace_->add({.iteration = iteration,
                   .rank = context_.world.rank(),
                   .instruction = static_cast<std::int32_t>(position),
                   .kind = to_string(instruction.kind),
                   .vertex = task,
                   .start_s = start_s,
                   .end_s = end_s,
                   .bytes = effect.bytes,
                   .peer = instruction.peer,
                   .version = effect.version,
                   .written = effect.written,
                   .waited_s = start_s - reached_s});
      if (records_sequences(context_.job, instruction) &&
          context_.groups_of(instruction.vertex).is_leader()) {
        const bool generates = instruction.kind == InstructionKind::kGenerate;
        trace_->add(rollout_record(
            context_,
            generates ? effect.generated.sequences : context_.sequences(instruction, iteration),
            effect.generated.verifier_s,
            iteration,
            position));
      }
    }
  }

  RankContext& context_;
  TraceWriter* trace_;
  const std::vector<Instruction>& program_;
  std::vector<std::string> tasks_;
  std::int64_t largest_shift_ = 0;
  std::map<std::int64_t, Flight> flights_;
  double last_end_s_ = 0.0;
};

}  // namespace

std::int64_t run_program(RankContext& context,
                         RunControl& control,
                         std::int64_t planned,
                         TraceWriter* trace) {
  return Walk(context, trace).run(control, planned);
}

void drain_weights(RankContext& context, std::int64_t iterations, TraceWriter* trace) {
  Walk(context, trace).drain(iterations);
}

double wait_limit_s(const Job& job, double longest_iteration_s, std::int64_t lead) {
  const VerifierSpec& verifier = job.config.verifier;
  const auto stages = static_cast<double>(std::popcount(job.plan.structure.cuts) + 1);
  const double commands_s =
      verifier.kind == VerifierKind::kCommand ? stages * verifier.timeout_s : 0.0;
  return static_cast<double>(lead) *
         (commands_s + std::max({kLeastTimeout_s,
                                 kPredictedTimes * job.predicted.iteration_time_s,
                                 kMeasuredTimes * longest_iteration_s}));
}

}  // namespace rpeg
