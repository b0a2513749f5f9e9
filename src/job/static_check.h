#pragma once

#include <string>

#include "rpeg/job/job.h"

namespace rpeg {

/// "rank 2, instruction 5 (receive values of i_V from rank 0)".
std::string describe(const Job& job, int rank, std::size_t instruction);

/// The parts of `check_programs` that need no execution: every index is in range, a weights
/// instruction agrees with its message, and each replica of each vertex is computed exactly once,
/// on its rank, with its sequences. Throws kUsage.
void check_static(const Job& job);

}  // namespace rpeg
