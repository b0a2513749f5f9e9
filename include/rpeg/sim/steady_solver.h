#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "rpeg/sim/simulator.h"

namespace rpeg {

/// Most tasks of one iteration: sets of tasks are masks of 64 bits.
inline constexpr std::size_t kMaxTasks = 64;

/// A task graph as the simulator works on it. Two tasks conflict when they share a GPU; to know
/// which do is as good as to know the atoms, since a task takes and frees all its atoms at once.
struct CompactTasks {
  std::size_t count = 0;                              ///< 1 … kMaxTasks
  std::array<std::int64_t, kMaxTasks> duration_ns{};  ///< at least 1
  std::array<std::uint64_t, kMaxTasks> conflicts{};   ///< bit j: not beside task j; own bit clear
  std::vector<TaskEdge> edges;
};

/// Seconds to the whole nanoseconds of the simulator, at least 1, so that what depends on a task
/// starts later than the task, and at most those of kLongestTask_s. Throws kInternal for a duration
/// that is not finite or is negative.
std::int64_t task_ns(double seconds);

/// The compact form of a task graph. Throws kInternal for more than kMaxTasks tasks.
CompactTasks compact_tasks(const TaskGraph& graph);

/// A task of one iteration.
struct TaskInstance {
  std::int32_t task = 0;
  std::int64_t iteration = 0;
};

/// The order that every iteration repeats: λ is the exact fraction period_ns / delta.
struct SteadyOrder {
  std::int64_t period_ns = 0;
  std::int64_t delta = 1;
  std::vector<std::int32_t> cycle;  ///< tasks on a critical cycle
  /// One iteration in the order of the starts; filled on request only.
  std::vector<TaskInstance> order;

  double period_s() const {
    return static_cast<double>(period_ns) / static_cast<double>(delta) / 1e9;
  }
};

/// The list scheduler of docs/search.md and the exact period of the order that it finds. Keeps its
/// working memory: solving again allocates nothing. Not to be shared between threads.
class SteadySolver {
 public:
  SteadySolver();
  ~SteadySolver();

  /// The period and the critical cycle. Throws kInternal when the tasks wait for each other. The
  /// result lives until the next call.
  const SteadyOrder& solve(const CompactTasks& tasks);

  /// The same with `order`, and with the timeline of at least `k_eval` iterations.
  const SteadyOrder& solve(const CompactTasks& tasks,
                           std::int64_t k_eval,
                           std::vector<ScheduledTask>* timeline);

 private:
  struct Workspace;
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace rpeg
