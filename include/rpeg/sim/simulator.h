#pragma once

/// Module `sim`: the steady state of a task graph that repeats every iteration. Sees tasks, edges
/// and atoms; never a plan.

#include <cstdint>
#include <vector>

#include "rpeg/cost/cost_model.h"

namespace rpeg {

/// Longer tasks (a large model on one GPU, looked at in passing by a search) count as this long, so
/// that sums over an unrolling fit into 64 bits of nanoseconds.
inline constexpr double kLongestTask_s = 1e6;

/// A task of one iteration in the simulated timeline.
struct ScheduledTask {
  std::int32_t task = 0;
  std::int64_t iteration = 0;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
};

/// The order that every iteration repeats, and what it costs.
struct SteadyState {
  double period_s = 0.0;            ///< λ: exact maximum cycle ratio of `order`
  std::vector<std::int32_t> order;  ///< tasks in the order of their steady-state start
  std::vector<std::int64_t> shift;  ///< per task: iterations behind the first task of the period
  std::vector<double> start_s;      ///< per task: start within the period's timeline
  std::vector<std::int32_t> critical_cycle;  ///< tasks on a cycle whose ratio is λ
  std::vector<ScheduledTask> timeline;       ///< of the unrolling, for the Gantt chart
};

/// Simulates at least `k_eval` iterations: a task starts when its inputs are there and its atoms
/// are free, no preemption; among ready tasks the earlier iteration first, then the longest
/// remaining path, then task order. The per-atom order of a single iteration of the periodic regime
/// is the schedule; `period_s` is the maximum cycle ratio of that order's event graph
/// (dependencies, plus each atom's order with a wrap-around arc of δ = 1).
SteadyState simulate(const TaskGraph& graph, std::int64_t k_eval);

/// Maximum cycle ratio Σ duration / Σ δ of a graph whose node i lasts `duration_s[i]`; an edge's δ
/// may be negative as long as every cycle has a positive sum. Returns 0 without cycles; throws
/// kInternal for a cycle of non-positive δ. `cycle`, when not null, receives the nodes of a
/// critical cycle.
double maximum_cycle_ratio(const std::vector<double>& duration_s,
                           const std::vector<TaskEdge>& edges,
                           std::vector<std::int32_t>* cycle);

}  // namespace rpeg
