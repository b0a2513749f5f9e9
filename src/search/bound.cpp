#include "rpeg/search/bound.h"

#include <algorithm>
#include <vector>

namespace rpeg {

SpaceBound space_bound(const WorkloadConfig&, const HardwareProfile&) {
  return {0.0, "not computed"};
}

double plan_bound_s(const TaskGraph& tasks) {
  std::vector<double> work(static_cast<std::size_t>(tasks.atom_count), 0.0);
  std::vector<double> durations;
  for (const TimedTask& task : tasks.tasks) {
    durations.push_back(task.time.total_s);
    for (const std::int32_t atom : task.atoms) {
      work[static_cast<std::size_t>(atom)] += task.time.total_s;
    }
  }
  double bound = maximum_cycle_ratio(durations, tasks.edges, nullptr);
  for (const double busy : work) bound = std::max(bound, busy);
  return bound;
}

}  // namespace rpeg
