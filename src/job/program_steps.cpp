#include "job/program_steps.h"

#include <algorithm>

namespace rpeg {

std::vector<ProgramStep> unroll_program(const Job& job,
                                        const RankSpec& rank,
                                        std::int64_t iterations) {
  std::int64_t last_shift = 0;
  std::int64_t last_delta = 0;
  for (const Instruction& instruction : rank.program) {
    last_shift = std::max(last_shift, instruction.shift);
  }
  for (const WeightTransfer& transfer : job.transfers) {
    last_delta = std::max(last_delta, transfer.delta);
  }
  const auto receives = [&](const Instruction& instruction, std::int64_t iteration) {
    const std::int64_t delta = job.transfers[static_cast<std::size_t>(instruction.transfer)].delta;
    // The first iterations run on the initial weights.
    return iteration >= delta && iteration < iterations + delta;
  };
  std::vector<ProgramStep> steps;
  for (std::int64_t period = 0; period < iterations + last_shift; ++period) {
    for (std::size_t i = 0; i < rank.program.size(); ++i) {
      const Instruction& instruction = rank.program[i];
      const std::int64_t iteration = period - instruction.shift;
      if (iteration >= 0 && iteration < iterations &&
          (instruction.kind != InstructionKind::kReceiveWeights ||
           receives(instruction, iteration))) {
        steps.push_back({i, iteration});
      }
    }
  }
  for (std::int64_t iteration = iterations; iteration < iterations + last_delta; ++iteration) {
    for (std::size_t i = 0; i < rank.program.size(); ++i) {
      if (rank.program[i].kind == InstructionKind::kReceiveWeights &&
          receives(rank.program[i], iteration)) {
        steps.push_back({i, iteration});
      }
    }
  }
  return steps;
}

}  // namespace rpeg
