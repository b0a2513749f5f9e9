#pragma once

#include <cstdint>
#include <vector>

#include "rpeg/sim/simulator.h"
#include "sim/cycle_ratio.h"

namespace rpeg::sim {

/// A task of one iteration.
struct Instance {
  std::int32_t task = 0;
  std::int64_t iteration = 0;
};

/// Starts that repeat for ever, every task `iterations` times.
struct PeriodicSequence {
  std::vector<Instance> instances;  ///< in the order of their starts
  std::int64_t iterations = 0;
};

struct ListSchedule {
  std::vector<std::int64_t> duration_ns;
  std::vector<ScheduledTask> timeline;  ///< in the order of the starts
  PeriodicSequence sequence;
  std::vector<Instance> one_iteration;  ///< one iteration alone, in an order without deadlock
};

/// The deterministic list schedule of docs/search.md, until its state repeats and at least
/// `k_eval` iterations have ended. Throws kInternal when the tasks wait for each other.
ListSchedule list_schedule(const TaskGraph& graph, std::int64_t k_eval);

}  // namespace rpeg::sim
