#pragma once

#include <cstdint>
#include <vector>

#include "rpeg/job/job.h"

namespace rpeg {

/// Rank programs in compact form. Most ranks do the same with other numbers, and a rank does the
/// same with many peers: a *class* is a list of steps without numbers; a rank has, for every step
/// of its class, runs of rows of numbers. A row is [peer, n, first, last, …] of a data message,
/// [n, first, last, …] of a computation, where the first n ranges are sequences and the others
/// slots, and [peer, message] of a weights message.

/// Consecutive instructions that differ in numbers only.
struct ClassStep {
  InstructionKind kind = InstructionKind::kGenerate;
  VertexId vertex{};
  Payload payload = Payload::kRollout;
  int tag = 0;
  int transfer = -1;
  std::int64_t shift = 0;
  auto operator<=>(const ClassStep&) const = default;
};

/// `count` rows: row, row + step, row + 2·step, …
struct RowRun {
  std::int64_t count = 1;
  std::vector<std::int64_t> row;
  std::vector<std::int64_t> step;  ///< empty when count is 1
};

struct RankProgram {
  std::size_t class_index = 0;
  std::vector<std::vector<RowRun>> steps;  ///< one list of runs for each step of the class
};

struct ProgramClasses {
  std::vector<std::vector<ClassStep>> classes;
  std::vector<RankProgram> ranks;
};

ProgramClasses compress_programs(const std::vector<RankSpec>& ranks);

/// The program of a rank of `job` again; message sizes follow from the rows and the job's inputs,
/// graph and transfers. Throws kUsage for rows that do not fit their step.
std::vector<Instruction> expand_program(const Job& job,
                                        const std::vector<ClassStep>& steps,
                                        const RankProgram& program);

}  // namespace rpeg
