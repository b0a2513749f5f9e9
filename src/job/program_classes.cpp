#include "job/program_classes.h"

#include <map>

#include "job/data_messages.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

using Row = std::vector<std::int64_t>;

bool is_weights(InstructionKind kind) {
  return kind == InstructionKind::kSendWeights || kind == InstructionKind::kReceiveWeights;
}

bool is_data(InstructionKind kind) {
  return kind == InstructionKind::kSend || kind == InstructionKind::kReceive;
}

ClassStep step_of(const Instruction& instruction) {
  return {instruction.kind,
          instruction.vertex,
          instruction.payload,
          instruction.tag,
          instruction.transfer,
          instruction.shift};
}

Row row_of(const Instruction& instruction) {
  if (is_weights(instruction.kind)) {
    return {instruction.peer, instruction.message};
  }
  Row row;
  if (is_data(instruction.kind)) {
    row.push_back(instruction.peer);
  }
  row.push_back(static_cast<std::int64_t>(instruction.sequences.size()));
  for (const auto* ranges : {&instruction.sequences, &instruction.slots}) {
    for (const SequenceRange& range : *ranges) {
      row.push_back(range.first);
      row.push_back(range.last);
    }
  }
  return row;
}

/// Appends a row to the last run if it continues it.
void append_row(std::vector<RowRun>* runs, Row row) {
  if (!runs->empty() && runs->back().row.size() == row.size()) {
    RowRun& run = runs->back();
    Row step(row.size());
    bool continues = true;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::int64_t from_first = row[i] - run.row[i];
      step[i] = from_first / run.count;
      continues = continues && step[i] * run.count == from_first &&
                  (run.count == 1 || step[i] == run.step[i]);
    }
    if (continues) {
      run.step = std::move(step);
      ++run.count;
      return;
    }
  }
  runs->push_back({1, std::move(row), {}});
}

void require(bool condition) {
  if (!condition) {
    throw Error(ErrorKind::kUsage, "the rank programs are damaged: compile the job again");
  }
}

Instruction instruction_of(const ClassStep& step, const Row& row) {
  Instruction result;
  result.kind = step.kind;
  result.vertex = step.vertex;
  result.payload = step.payload;
  result.tag = step.tag;
  result.transfer = step.transfer;
  result.shift = step.shift;
  std::size_t next = 0;
  if (is_weights(step.kind) || is_data(step.kind)) {
    require(!row.empty());
    result.peer = static_cast<int>(row[next++]);
  }
  if (is_weights(step.kind)) {
    require(row.size() == 2);
    result.message = static_cast<int>(row[next]);
    return result;
  }
  require(next < row.size());
  const std::int64_t sequence_ranges = row[next++];
  require((row.size() - next) % 2 == 0 && sequence_ranges >= 0 &&
          static_cast<std::size_t>(sequence_ranges) <= (row.size() - next) / 2);
  for (std::int64_t i = 0; next < row.size(); next += 2, ++i) {
    auto& ranges = i < sequence_ranges ? result.sequences : result.slots;
    ranges.push_back({row[next], row[next + 1]});
  }
  return result;
}

std::int64_t capacity_of(const Job& job, const Instruction& instruction) {
  if (is_weights(instruction.kind)) {
    const auto transfer = static_cast<std::size_t>(instruction.transfer);
    const auto message = static_cast<std::size_t>(instruction.message);
    require(transfer < job.transfers.size() && message < job.transfers[transfer].messages.size());
    return job.transfers[transfer].messages[message].bytes;
  }
  return is_data(instruction.kind) ? data_capacity_bytes(job, instruction) : 0;
}

}  // namespace

ProgramClasses compress_programs(const std::vector<RankSpec>& ranks) {
  ProgramClasses result;
  std::map<std::vector<ClassStep>, std::size_t> known;
  for (const RankSpec& rank : ranks) {
    std::vector<ClassStep> steps;
    RankProgram program;
    for (const Instruction& instruction : rank.program) {
      const ClassStep step = step_of(instruction);
      if (steps.empty() || steps.back() != step) {
        steps.push_back(step);
        program.steps.emplace_back();
      }
      append_row(&program.steps.back(), row_of(instruction));
    }
    const auto [at, is_new] = known.emplace(steps, result.classes.size());
    if (is_new) {
      result.classes.push_back(std::move(steps));
    }
    program.class_index = at->second;
    result.ranks.push_back(std::move(program));
  }
  return result;
}

std::vector<Instruction> expand_program(const Job& job,
                                        const std::vector<ClassStep>& steps,
                                        const RankProgram& program) {
  require(steps.size() == program.steps.size());
  std::vector<Instruction> result;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    for (const RowRun& run : program.steps[s]) {
      Row row = run.row;
      for (std::int64_t i = 0; i < run.count; ++i) {
        result.push_back(instruction_of(steps[s], row));
        result.back().capacity_bytes = capacity_of(job, result.back());
        for (std::size_t j = 0; j < run.step.size(); ++j) {
          row[j] += run.step[j];
        }
      }
    }
  }
  return result;
}

}  // namespace rpeg
