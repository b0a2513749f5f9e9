#pragma once

#include <cstdint>
#include <vector>

#include "rpeg/search/evaluation.h"

namespace rpeg::report {

/// Per task: the vertex of the plan that it runs, wholly or one stage of it; -1: a transfer.
std::vector<std::int32_t> task_vertices(const Evaluation& evaluation);

/// Memory of the vertex that a task runs.
const MemoryUse& task_memory(const Evaluation& evaluation, std::size_t task);

}  // namespace rpeg::report
