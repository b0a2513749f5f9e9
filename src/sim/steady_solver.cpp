#include "rpeg/sim/steady_solver.h"

#include <algorithm>

#include "rpeg/base/error.h"
#include "sim/cycle_ratio.h"
#include "sim/list_scheduler.h"
#include "sim/order_rating.h"

namespace rpeg {

using sim::bit;
using sim::Input;
using sim::lowest;

struct SteadySolver::Workspace {
  bool find_cause(std::size_t task, std::size_t* cause, std::int64_t* delta) const;
  bool walk_critical_cycle(std::int64_t period_ns);
  void list_strict_order();
  void rate_sequence();

  sim::ListScheduler schedule;
  std::vector<TaskInstance> strict;
  sim::PeriodicSequence sequence;
  sim::OrderRater rater;
  SteadyOrder result;
};

/// A task whose end made the latest instance of `task` start when it did, and the iteration
/// distance to it. False when there is none: the window of open iterations held it back.
bool SteadySolver::Workspace::find_cause(std::size_t task,
                                         std::size_t* cause,
                                         std::int64_t* delta) const {
  const std::uint64_t ends = schedule.ends_then[task];
  // The latest instances are those of one period; what ended then may have started again since.
  const auto distance = [&](std::size_t before) {
    const bool again =
        schedule.start_ns[before] + schedule.tasks->duration_ns[before] != schedule.start_ns[task];
    return schedule.started[task] - schedule.started[before] + (again ? 1 : 0);
  };
  const std::uint64_t same_gpus = ends & (schedule.tasks->conflicts[task] | bit(task));
  if (same_gpus != 0) {
    *cause = lowest(same_gpus);
    *delta = *cause == task ? 1 : distance(*cause);
    return true;
  }
  for (std::size_t i = schedule.first_input[task]; i < schedule.first_input[task + 1]; ++i) {
    const Input& input = schedule.inputs[i];
    if ((ends & bit(input.from)) == 0 || distance(input.from) != input.delta) continue;
    *cause = input.from;
    *delta = input.delta;
    return true;
  }
  return false;
}

/// Walks from cause to cause until a task comes up again. All on the way follow each other without
/// a gap, so the ratio of the cycle is the period.
bool SteadySolver::Workspace::walk_critical_cycle(std::int64_t period_ns) {
  std::array<std::int64_t, kMaxTasks> when;  // Σ δ up to a task of the walk
  std::uint64_t seen = 0;
  std::int64_t delta = 0;
  std::size_t task = 0;
  result.cycle.clear();
  while ((seen & bit(task)) == 0) {
    seen |= bit(task);
    when[task] = delta;
    result.cycle.push_back(static_cast<std::int32_t>(task));
    std::size_t cause = 0;
    std::int64_t step = 0;
    if (!find_cause(task, &cause, &step)) return false;
    delta += step;
    task = cause;
  }
  const auto first = std::ranges::find(result.cycle, static_cast<std::int32_t>(task));
  result.cycle.erase(result.cycle.begin(), first);
  std::ranges::reverse(result.cycle);
  std::int64_t duration_ns = 0;
  for (const std::int32_t id : result.cycle) {
    duration_ns += schedule.tasks->duration_ns[static_cast<std::size_t>(id)];
  }
  check(duration_ns == (delta - when[task]) * period_ns, "the critical cycle has the period");
  result.period_ns = period_ns;
  result.delta = 1;
  return true;
}

/// One iteration alone: of the tasks whose inputs are listed, the one of the longest path first.
void SteadySolver::Workspace::list_strict_order() {
  strict.clear();
  std::uint64_t placed = 0;
  while (strict.size() < schedule.count) {
    std::size_t next = schedule.count;
    for (std::size_t task = 0; task < schedule.count; ++task) {
      if ((placed & bit(task)) != 0) continue;
      bool is_open = true;
      for (std::size_t i = schedule.first_input[task]; i < schedule.first_input[task + 1]; ++i) {
        is_open &= schedule.inputs[i].delta != 0 || (placed & bit(schedule.inputs[i].from)) != 0;
      }
      if (!is_open) continue;
      if (next == schedule.count || schedule.path_ns[task] > schedule.path_ns[next]) next = task;
    }
    check(next < schedule.count, "the tasks of one iteration wait for each other in a cycle");
    placed |= bit(next);
    strict.push_back({static_cast<std::int32_t>(next), 0});
  }
}

void SteadySolver::Workspace::rate_sequence() {
  list_strict_order();
  sequence.starts.clear();
  sequence.iterations = std::max<std::int64_t>(1, schedule.iterations);
  if (schedule.iterations == 0) sequence.starts = strict;
  for (std::size_t i = schedule.state_starts[schedule.repeated];
       schedule.iterations != 0 && i < schedule.period_end;
       ++i) {
    sequence.starts.push_back({schedule.timeline[i].task, schedule.timeline[i].iteration});
  }
  rater.rate(*schedule.tasks, sequence, strict, &result);
}

SteadySolver::SteadySolver() : workspace_(new Workspace) {}
SteadySolver::~SteadySolver() = default;

const SteadyOrder& SteadySolver::solve(const CompactTasks& tasks) {
  Workspace& work = *workspace_;
  work.schedule.prepare(tasks);
  work.schedule.run(0);
  const bool every_iteration =
      work.schedule.iterations == 1 &&
      work.walk_critical_cycle(work.schedule.now_ns -
                               work.schedule.state_time_ns[work.schedule.repeated]);
  if (!every_iteration) work.rate_sequence();
  return work.result;
}

const SteadyOrder& SteadySolver::solve(const CompactTasks& tasks,
                                       std::int64_t k_eval,
                                       std::vector<ScheduledTask>* timeline) {
  solve(tasks);
  Workspace& work = *workspace_;
  if (work.schedule.iterations == 1) {
    work.result.order.clear();
    for (std::size_t i = work.schedule.state_starts[work.schedule.repeated];
         i < work.schedule.period_end;
         ++i) {
      work.result.order.push_back(
          {work.schedule.timeline[i].task, work.schedule.timeline[i].iteration});
    }
  }
  work.schedule.prepare(tasks);
  work.schedule.run(k_eval);
  *timeline = work.schedule.timeline;
  return work.result;
}

std::int64_t task_ns(double seconds) { return std::max<std::int64_t>(1, sim::to_ns(seconds)); }

CompactTasks compact_tasks(const TaskGraph& graph) {
  check(graph.tasks.size() <= kMaxTasks, "sim: more than 64 tasks in an iteration");
  CompactTasks compact;
  compact.count = graph.tasks.size();
  compact.edges = graph.edges;
  std::vector<std::uint64_t> users(static_cast<std::size_t>(graph.atom_count), 0);
  for (std::size_t id = 0; id < compact.count; ++id) {
    compact.duration_ns[id] = task_ns(graph.tasks[id].time.total_s);
    for (const std::int32_t atom : graph.tasks[id].atoms) {
      users[static_cast<std::size_t>(atom)] |= bit(id);
    }
  }
  for (std::size_t id = 0; id < compact.count; ++id) {
    for (const std::int32_t atom : graph.tasks[id].atoms) {
      compact.conflicts[id] |= users[static_cast<std::size_t>(atom)];
    }
    compact.conflicts[id] &= ~bit(id);
  }
  return compact;
}

}  // namespace rpeg
