#include "unit/sim/reference_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "rpeg/base/error.h"

namespace rpeg::reference {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

/// The scheduler's state when an iteration has just ended, relative to that iteration and time.
struct Snapshot {
  std::vector<std::int64_t> relative;
  std::int64_t iteration = 0;
  std::size_t starts = 0;  ///< length of the timeline
};

/// One run of the list scheduler. Instances of a task run one after the other, so counts of started
/// and ended instances describe everything that has happened.
class ListScheduler {
 public:
  ListScheduler(const TaskGraph& graph, std::vector<std::int64_t> duration_ns)
      : graph_(graph),
        duration_ns_(std::move(duration_ns)),
        inputs_(graph.tasks.size()),
        path_ns_(graph.tasks.size(), 0),
        started_(graph.tasks.size(), 0),
        ended_(graph.tasks.size(), 0),
        end_ns_(graph.tasks.size(), kNever),
        busy_(static_cast<std::size_t>(graph.atom_count), false) {
    for (const TaskEdge& edge : graph.edges) {
      inputs_[static_cast<std::size_t>(edge.to)].push_back(edge);
      look_ahead_ = std::max(look_ahead_, edge.delta + 2);
    }
    find_remaining_paths();
  }

  ListSchedule run(std::int64_t k_eval);

 private:
  void find_remaining_paths();
  bool is_ready(std::size_t task) const;
  bool has_free_atoms(std::size_t task) const;
  void start_ready_tasks();
  void advance();
  Snapshot snapshot() const;
  std::vector<Instance> instances(std::size_t from, std::size_t to) const;

  const TaskGraph& graph_;
  std::vector<std::int64_t> duration_ns_;
  std::vector<std::vector<TaskEdge>> inputs_;
  std::vector<std::int64_t> path_ns_;      ///< longest remaining path of the iteration
  std::vector<std::int32_t> topological_;  ///< by edges of δ = 0, longest path first
  std::vector<std::int64_t> started_;      ///< per task: instances
  std::vector<std::int64_t> ended_;        ///< per task: instances
  std::vector<std::int64_t> end_ns_;       ///< per task: of the running instance
  std::vector<bool> busy_;                 ///< per atom
  std::vector<ScheduledTask> timeline_;
  std::vector<std::size_t> ready_;
  std::int64_t look_ahead_ = 2;  ///< iterations that may be open: keeps the state finite
  std::int64_t done_ = 0;        ///< iterations that have ended
  std::int64_t now_ns_ = 0;
};

/// Longest path from a task's start to the end of its iteration, over edges of δ = 0.
void ListScheduler::find_remaining_paths() {
  const std::size_t tasks = graph_.tasks.size();
  for (std::size_t round = 0; round <= tasks; ++round) {
    bool changed = false;
    for (std::size_t task = 0; task < tasks; ++task) {
      path_ns_[task] = std::max(path_ns_[task], duration_ns_[task]);
    }
    for (const TaskEdge& edge : graph_.edges) {
      if (edge.delta != 0) continue;
      const auto from = static_cast<std::size_t>(edge.from);
      const std::int64_t path = duration_ns_[from] + path_ns_[static_cast<std::size_t>(edge.to)];
      if (path > path_ns_[from]) {
        path_ns_[from] = path;
        changed = true;
      }
    }
    if (!changed) break;
    check(round < tasks, "the tasks of one iteration wait for each other in a cycle");
  }
  std::vector<bool> placed(tasks, false);
  while (topological_.size() < tasks) {
    std::int32_t next = -1;
    for (std::size_t task = 0; task < tasks; ++task) {
      const bool is_open = !placed[task] && std::ranges::all_of(inputs_[task], [&](auto& edge) {
        return edge.delta != 0 || placed[static_cast<std::size_t>(edge.from)];
      });
      if (is_open && (next < 0 || path_ns_[task] > path_ns_[static_cast<std::size_t>(next)])) {
        next = static_cast<std::int32_t>(task);
      }
    }
    check(next >= 0, "the tasks of one iteration wait for each other in a cycle");
    placed[static_cast<std::size_t>(next)] = true;
    topological_.push_back(next);
  }
}

bool ListScheduler::is_ready(std::size_t task) const {
  const std::int64_t iteration = started_[task];
  if (iteration > ended_[task] || iteration >= done_ + look_ahead_) return false;
  return std::ranges::all_of(inputs_[task], [&](const TaskEdge& edge) {
    return ended_[static_cast<std::size_t>(edge.from)] > iteration - edge.delta;
  });
}

bool ListScheduler::has_free_atoms(std::size_t task) const {
  return std::ranges::none_of(graph_.tasks[task].atoms, [&](std::int32_t atom) {
    return busy_[static_cast<std::size_t>(atom)];
  });
}

void ListScheduler::start_ready_tasks() {
  ready_.clear();
  for (std::size_t task = 0; task < inputs_.size(); ++task) {
    if (is_ready(task) && has_free_atoms(task)) ready_.push_back(task);
  }
  std::ranges::sort(ready_, {}, [&](std::size_t task) {
    return std::tuple(started_[task], -path_ns_[task], task);
  });
  for (const std::size_t task : ready_) {
    if (!has_free_atoms(task)) continue;
    for (const std::int32_t atom : graph_.tasks[task].atoms) {
      busy_[static_cast<std::size_t>(atom)] = true;
    }
    end_ns_[task] = now_ns_ + duration_ns_[task];
    timeline_.push_back({static_cast<std::int32_t>(task), started_[task], now_ns_, end_ns_[task]});
    ++started_[task];
  }
}

/// Moves to the next end of a task and ends all that end then.
void ListScheduler::advance() {
  const std::int64_t next = *std::ranges::min_element(end_ns_);
  check(next != kNever, "the tasks wait for each other: nothing runs and nothing can start");
  now_ns_ = next;
  for (std::size_t task = 0; task < end_ns_.size(); ++task) {
    if (end_ns_[task] != next) continue;
    end_ns_[task] = kNever;
    ++ended_[task];
    for (const std::int32_t atom : graph_.tasks[task].atoms) {
      busy_[static_cast<std::size_t>(atom)] = false;
    }
  }
}

Snapshot ListScheduler::snapshot() const {
  Snapshot result{{}, done_, timeline_.size()};
  result.relative.reserve(3 * ended_.size());
  for (std::size_t task = 0; task < ended_.size(); ++task) {
    result.relative.push_back(started_[task] - done_);
    result.relative.push_back(ended_[task] - done_);
    result.relative.push_back(end_ns_[task] == kNever ? -1 : end_ns_[task] - now_ns_);
  }
  return result;
}

std::vector<Instance> ListScheduler::instances(std::size_t from, std::size_t to) const {
  std::vector<Instance> result;
  for (std::size_t i = from; i < to; ++i) {
    result.push_back({timeline_[i].task, timeline_[i].iteration});
  }
  return result;
}

ListSchedule ListScheduler::run(std::int64_t k_eval) {
  ListSchedule result;
  for (const std::int32_t task : topological_) result.one_iteration.push_back({task, 0});
  // Random pipelines repeat within 20 iterations; beyond this many the state is not looked at any
  // more and the strict order of one iteration is taken.
  const std::int64_t most = std::max<std::int64_t>(k_eval, 64 + 4 * look_ahead_);
  std::vector<Snapshot> snapshots;
  bool repeats = false;
  while (done_ < k_eval || (!repeats && done_ < most)) {
    start_ready_tasks();
    const std::int64_t done = *std::ranges::min_element(ended_);
    if (done > done_) {
      // The window of open iterations has moved: more may start before the state is looked at.
      done_ = done;
      start_ready_tasks();
      if (!repeats) {
        Snapshot now = snapshot();
        const auto same = std::ranges::find(snapshots, now.relative, &Snapshot::relative);
        if (same != snapshots.end()) {
          repeats = true;
          result.sequence = {instances(same->starts, now.starts), now.iteration - same->iteration};
        }
        snapshots.push_back(std::move(now));
      }
    }
    advance();
  }
  if (!repeats) result.sequence = {result.one_iteration, 1};
  result.timeline = std::move(timeline_);
  result.duration_ns = std::move(duration_ns_);
  return result;
}

}  // namespace

ListSchedule list_schedule(const TaskGraph& graph, std::int64_t k_eval) {
  std::vector<std::int64_t> duration_ns;
  for (const TimedTask& task : graph.tasks) {
    // At least 1 ns, so that what depends on a task starts later than the task.
    duration_ns.push_back(std::max<std::int64_t>(1, std::llround(task.time.total_s * 1e9)));
  }
  return ListScheduler(graph, std::move(duration_ns)).run(k_eval);
}

}  // namespace rpeg::reference
