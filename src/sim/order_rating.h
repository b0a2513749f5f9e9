#pragma once

#include <cstdint>
#include <vector>

#include "rpeg/sim/steady_solver.h"
#include "sim/cycle_ratio.h"

// What the order of a single iteration costs, and the best one of a periodic sequence.

namespace rpeg::sim {

/// Starts that repeat for ever, every task `iterations` times.
struct PeriodicSequence {
  std::vector<TaskInstance> starts;
  std::int64_t iterations = 0;
};

/// Dependencies, and the order of conflicting tasks with a wrap-around arc of δ = 1; arcs that a
/// chain of others implies are left out. Tasks run one instance at a time.
void event_graph(const CompactTasks& tasks,
                 const std::vector<TaskInstance>& order,
                 std::vector<TaskEdge>* edges);

/// Finds the order of least period among those that a periodic sequence contains. Keeps its working
/// memory between calls.
class OrderRater {
 public:
  /// `strict` is one iteration without deadlock, which is rated too unless the sequence is a single
  /// iteration. Sets period, delta, cycle and order of `best`.
  void rate(const CompactTasks& tasks,
            const PeriodicSequence& sequence,
            const std::vector<TaskInstance>& strict,
            SteadyOrder* best);

 private:
  void try_order(const CompactTasks& tasks,
                 const std::vector<TaskInstance>& order,
                 SteadyOrder* best);
  bool read_window(const PeriodicSequence& sequence, std::size_t from, std::size_t tasks);

  std::vector<std::int64_t> duration_ns_;
  std::vector<TaskEdge> edges_;
  std::vector<TaskInstance> window_;
  CycleRatioSolver solver_;
  CycleRatio ratio_;
  bool found_ = false;
};

}  // namespace rpeg::sim
