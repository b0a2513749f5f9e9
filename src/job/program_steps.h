#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rpeg/job/job.h"

namespace rpeg {

/// An instruction of a rank program and the iteration for which it runs.
struct ProgramStep {
  std::size_t instruction = 0;
  std::int64_t iteration = 0;
};

/// What a rank executes: the periods of its program, then the receives of the weights that are
/// still on their way after `iterations` iterations.
std::vector<ProgramStep> unroll_program(const Job& job,
                                        const RankSpec& rank,
                                        std::int64_t iterations);

}  // namespace rpeg
