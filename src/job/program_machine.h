#pragma once

#include "job/layout.h"

namespace rpeg {

/// Executes all rank programs together without data, `iterations` iterations and the weights that
/// arrive after the last one. Throws kUsage for the first inconsistency, see `check_programs`.
/// `most_in_flight`: by tag, messages of a pair of ranks that may be on their way at once.
void execute_symbolically(const Job& job,
                          std::int64_t iterations,
                          const std::vector<std::int64_t>& most_in_flight);

}  // namespace rpeg
