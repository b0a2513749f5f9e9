#include "sim/order_rating.h"

#include "rpeg/base/error.h"

namespace rpeg::sim {
namespace {

std::uint64_t bit(std::int32_t task) { return std::uint64_t{1} << task; }

}  // namespace

void event_graph(const CompactTasks& tasks,
                 const std::vector<TaskInstance>& order,
                 std::vector<TaskEdge>* edges) {
  edges->clear();
  const std::size_t count = order.size();
  for (std::size_t j = 0; j < count; ++j) {
    const TaskInstance now = order[j];
    for (const TaskEdge& edge : tasks.edges) {
      if (edge.to == now.task) edges->push_back(edge);
    }
    // Backwards round the order to the instance before: the nearest of those that conflict with
    // each other implies the ones further away.
    std::uint64_t open = tasks.conflicts[static_cast<std::size_t>(now.task)] | bit(now.task);
    for (std::size_t step = 1; step <= count && open != 0; ++step) {
      const bool wraps = step > j;
      const TaskInstance& before = order[wraps ? j + count - step : j - step];
      if ((open & bit(before.task)) == 0) continue;
      edges->push_back({before.task, now.task, now.iteration - before.iteration + (wraps ? 1 : 0)});
      open &= ~(tasks.conflicts[static_cast<std::size_t>(before.task)] | bit(before.task));
    }
  }
}

/// Reads the first occurrence of every task from position `from` on. False when the order is that
/// of the position before: its first task has only moved from the front to the end.
bool OrderRater::read_window(const PeriodicSequence& sequence,
                             std::size_t from,
                             std::size_t tasks) {
  std::uint64_t seen = 0;
  window_.clear();
  const std::size_t length = sequence.starts.size();
  std::size_t i = from;
  for (; window_.size() < tasks; ++i) {
    TaskInstance now = sequence.starts[i % length];
    now.iteration += static_cast<std::int64_t>(i / length) * sequence.iterations;
    if ((seen & bit(now.task)) != 0) continue;
    seen |= bit(now.task);
    window_.push_back(now);
  }
  return from == 0 || window_.back().task != sequence.starts[from - 1].task;
}

void OrderRater::try_order(const CompactTasks& tasks,
                           const std::vector<TaskInstance>& order,
                           SteadyOrder* best) {
  event_graph(tasks, order, &edges_);
  if (found_ && solver_.exceeds(duration_ns_, edges_, ratio_)) return;
  const CycleRatio* ratio = solver_.solve(duration_ns_, edges_);
  if (ratio == nullptr) return;
  const bool shorter = ratio->duration_ns * ratio_.delta < ratio_.duration_ns * ratio->delta;
  if (found_ && !shorter) return;
  found_ = true;
  ratio_ = *ratio;
  best->period_ns = ratio->duration_ns;
  best->delta = ratio->delta;
  best->cycle = ratio->cycle;
  best->order = order;
}

void OrderRater::rate(const CompactTasks& tasks,
                      const PeriodicSequence& sequence,
                      const std::vector<TaskInstance>& strict,
                      SteadyOrder* best) {
  duration_ns_.assign(tasks.duration_ns.begin(),
                      tasks.duration_ns.begin() + static_cast<std::ptrdiff_t>(tasks.count));
  found_ = false;
  // With one iteration in the sequence every window is the same cyclic order.
  const std::size_t windows = sequence.iterations == 1 ? 1 : sequence.starts.size();
  for (std::size_t i = 0; i < windows; ++i) {
    if (read_window(sequence, i, tasks.count)) try_order(tasks, window_, best);
  }
  // Iterations strictly one after the other: never a deadlock, so there is always a candidate.
  if (windows != 1) try_order(tasks, strict, best);
  check(found_, "the schedule has an order without deadlock");
}

}  // namespace rpeg::sim
