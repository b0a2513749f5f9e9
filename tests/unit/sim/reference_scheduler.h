#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rpeg/sim/simulator.h"

// The list scheduler, the event graph on atoms and the cycle ratio by parametric search, written
// plainly: what the solver of the library must agree with.

namespace rpeg::reference {

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

/// A maximum cycle ratio as an exact fraction.
struct Ratio {
  std::int64_t duration_ns = 0;
  std::int64_t delta = 1;
};

/// By parametric search; nothing when some cycle has a non-positive Σ δ.
std::optional<Ratio> find_maximum_cycle_ratio(const std::vector<std::int64_t>& duration_ns,
                                              const std::vector<TaskEdge>& edges);

/// Dependencies, and on every atom the order of the tasks with a wrap-around arc of δ = 1.
std::vector<TaskEdge> event_graph(const TaskGraph& graph, const std::vector<Instance>& order);

/// The period of the best single-iteration order, and over how many iterations the list schedule
/// repeats.
struct Period {
  Ratio ratio;
  std::int64_t iterations = 0;
};
Period find_period(const TaskGraph& graph);

}  // namespace rpeg::reference
