#include "sim/list_scheduler.h"

#include <algorithm>
#include <limits>

#include "rpeg/base/error.h"

namespace rpeg::sim {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMostLookAhead = 4096;
// A state of a task is one word: iterations started above the remaining time of the running one.
constexpr int kRemainingBits = 50;  // 1e15 ns and more

}  // namespace

void ListScheduler::read_edges() {
  const std::vector<TaskEdge>& edges = tasks->edges;
  inputs.resize(edges.size());
  outputs.resize(edges.size());
  tokens.resize(edges.size());
  std::fill_n(first_input.begin(), count + 1, 0);
  std::fill_n(first_output.begin(), count + 1, 0);
  std::int64_t most_delta = 0;
  for (const TaskEdge& edge : edges) {
    ++first_input[static_cast<std::size_t>(edge.to) + 1];
    ++first_output[static_cast<std::size_t>(edge.from) + 1];
    most_delta = std::max(most_delta, edge.delta);
  }
  look_ahead = most_delta + 2;
  check(look_ahead <= kMostLookAhead, "sim: an iteration distance above 4094");
  for (std::size_t i = 0; i < count; ++i) {
    first_input[i + 1] += first_input[i];
    first_output[i + 1] += first_output[i];
  }
  std::array<std::size_t, kMaxTasks> input_end;
  std::array<std::size_t, kMaxTasks> output_end;
  std::copy_n(first_input.begin(), count, input_end.begin());
  std::copy_n(first_output.begin(), count, output_end.begin());
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const auto from = static_cast<std::size_t>(edges[i].from);
    const auto to = static_cast<std::size_t>(edges[i].to);
    inputs[input_end[to]++] = {from, edges[i].delta, i};
    outputs[output_end[from]++] = {to, i};
    tokens[i] = edges[i].delta;
    if (edges[i].delta <= 0) ++empty[to];
  }
}

/// Longest path from a task's start to the end of its iteration, over edges of δ = 0. One pass when
/// they lead to later tasks, as those of a plan do.
void ListScheduler::find_remaining_paths() {
  std::copy_n(tasks->duration_ns.begin(), count, path_ns.begin());
  for (std::size_t round = 0;; ++round) {
    check(round <= count, "the tasks of one iteration wait for each other in a cycle");
    bool leads_back = false;
    bool changed = false;
    for (std::size_t to = count; to-- > 0;) {
      for (std::size_t i = first_input[to]; i < first_input[to + 1]; ++i) {
        const Input& input = inputs[i];
        if (input.delta != 0) continue;
        leads_back |= input.from >= to;
        const std::int64_t path = tasks->duration_ns[input.from] + path_ns[to];
        if (path <= path_ns[input.from]) continue;
        path_ns[input.from] = path;
        changed = true;
      }
    }
    if (!leads_back || !changed) break;
  }
}

void ListScheduler::prepare(const CompactTasks& what) {
  tasks = &what;
  count = what.count;
  check(count >= 1 && count <= kMaxTasks, "sim: between 1 and 64 tasks");
  std::fill_n(empty.begin(), count, 0);
  std::fill_n(started.begin(), count, 0);
  std::fill_n(ended.begin(), count, 0);
  read_edges();
  find_remaining_paths();
  behind = count == kMaxTasks ? ~std::uint64_t{0} : bit(count) - 1;
  ready = 0;
  for (std::size_t task = 0; task < count; ++task) {
    if (empty[task] == 0) ready |= bit(task);
  }
  running = 0;
  beyond = 0;
  ended_now = 0;
  done = 0;
  now_ns = 0;
  timeline.clear();
  states.clear();
  state_starts.clear();
  state_time_ns.clear();
  iterations = 0;
}

void ListScheduler::start(std::size_t task) {
  const std::int64_t end = now_ns + tasks->duration_ns[task];
  timeline.push_back({static_cast<std::int32_t>(task), started[task], now_ns, end});
  end_ns[task] = end;
  start_ns[task] = now_ns;
  ends_then[task] = ended_now;
  running |= bit(task);
  if (++started[task] >= done + look_ahead) beyond |= bit(task);
  for (std::size_t i = first_input[task]; i < first_input[task + 1]; ++i) {
    if (--tokens[inputs[i].token] == 0) ++empty[task];
  }
  if (empty[task] > 0) ready &= ~bit(task);
}

/// Earlier iteration first, then longest remaining path, then task order.
void ListScheduler::start_ready_tasks() {
  std::uint64_t open = 0;
  for (std::uint64_t rest = ready & ~running & ~beyond; rest != 0; rest &= rest - 1) {
    const std::size_t task = lowest(rest);
    if ((tasks->conflicts[task] & running) == 0) open |= bit(task);
  }
  while (open != 0) {
    std::size_t best = lowest(open);
    for (std::uint64_t rest = open & (open - 1); rest != 0; rest &= rest - 1) {
      const std::size_t task = lowest(rest);
      if (started[task] != started[best] ? started[task] < started[best]
                                         : path_ns[task] > path_ns[best]) {
        best = task;
      }
    }
    start(best);
    open &= ~(tasks->conflicts[best] | bit(best));
  }
}

/// Moves to the next end of a task and ends all that end then.
void ListScheduler::advance() {
  std::int64_t next = kNever;
  for (std::uint64_t rest = running; rest != 0; rest &= rest - 1) {
    next = std::min(next, end_ns[lowest(rest)]);
  }
  check(next != kNever, "the tasks wait for each other: nothing runs and nothing can start");
  now_ns = next;
  ended_now = 0;
  for (std::uint64_t rest = running; rest != 0; rest &= rest - 1) {
    const std::size_t task = lowest(rest);
    if (end_ns[task] != next) continue;
    ended_now |= bit(task);
    if (ended[task]++ == done) behind &= ~bit(task);
    for (std::size_t i = first_output[task]; i < first_output[task + 1]; ++i) {
      if (++tokens[outputs[i].token] != 1) continue;
      if (--empty[outputs[i].to] == 0) ready |= bit(outputs[i].to);
    }
  }
  running &= ~ended_now;
}

/// The oldest open iteration has ended: one more may start.
void ListScheduler::open_next_iteration() {
  ++done;
  beyond = 0;
  for (std::size_t task = 0; task < count; ++task) {
    if (ended[task] == done) behind |= bit(task);
    if (started[task] >= done + look_ahead) beyond |= bit(task);
  }
}

/// Looks at the state, relative to the iteration that has just ended, and compares it with those
/// before.
bool ListScheduler::state_repeats() {
  const std::size_t looks = state_starts.size();
  states.resize((looks + 1) * count);
  std::uint64_t* now = states.data() + looks * count;
  for (std::size_t task = 0; task < count; ++task) {
    const std::int64_t left = (running & bit(task)) != 0 ? end_ns[task] - now_ns : 0;
    now[task] = static_cast<std::uint64_t>(started[task] - done) << kRemainingBits |
                static_cast<std::uint64_t>(left);
  }
  state_starts.push_back(timeline.size());
  state_time_ns.push_back(now_ns);
  for (std::size_t look = looks; look-- > 0;) {
    if (!std::equal(now, now + count, states.data() + look * count)) continue;
    repeated = look;
    period_end = timeline.size();
    iterations = static_cast<std::int64_t>(looks - look);
    return true;
  }
  return false;
}

/// Until the state repeats and `k_eval` iterations have ended. Random pipelines repeat within 20
/// iterations; beyond `most` the strict order of one iteration is taken.
void ListScheduler::run(std::int64_t k_eval) {
  const std::int64_t most = 64 + 4 * look_ahead;
  start_ready_tasks();
  state_repeats();
  while (true) {
    advance();
    start_ready_tasks();
    if (behind != 0) continue;
    // The window of open iterations has moved: more may start before the state is looked at.
    open_next_iteration();
    start_ready_tasks();
    if (iterations == 0 && done <= most) state_repeats();
    if ((iterations != 0 || done >= most) && done >= k_eval) break;
  }
}

}  // namespace rpeg::sim
