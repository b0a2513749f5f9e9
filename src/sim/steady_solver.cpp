#include "rpeg/sim/steady_solver.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "rpeg/base/error.h"
#include "sim/cycle_ratio.h"
#include "sim/order_rating.h"

namespace rpeg {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMostLookAhead = 4096;
// A state of a task is one word: iterations started above the remaining time of the running one.
constexpr int kRemainingBits = 50;  // 1e15 ns and more

std::uint64_t bit(std::size_t task) { return std::uint64_t{1} << task; }
std::size_t lowest(std::uint64_t set) { return static_cast<std::size_t>(std::countr_zero(set)); }

/// An edge at its receiver, and at its sender.
struct Input {
  std::size_t from = 0;
  std::int64_t delta = 0;
  std::size_t token = 0;
};
struct Output {
  std::size_t to = 0;
  std::size_t token = 0;
};

}  // namespace

/// One run of the list scheduler. Instances of a task run one after the other. Every edge carries
/// tokens, one for each end of its sender that its receiver has not used up; a task whose edges all
/// carry one has its inputs.
struct SteadySolver::Workspace {
  void prepare(const CompactTasks& tasks);
  void read_edges();
  void find_remaining_paths();
  void start(std::size_t task);
  void start_ready_tasks();
  void advance();
  void open_next_iteration();
  bool state_repeats();
  void run(std::int64_t k_eval);
  bool walk_critical_cycle(std::int64_t period_ns);
  bool find_cause(std::size_t task, std::size_t* cause, std::int64_t* delta) const;
  void list_strict_order();
  void rate_sequence();

  const CompactTasks* tasks = nullptr;
  std::size_t count = 0;
  std::array<std::size_t, kMaxTasks + 1> first_input{};
  std::array<std::size_t, kMaxTasks + 1> first_output{};
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<std::int64_t> tokens;                  ///< per edge
  std::array<std::int32_t, kMaxTasks> empty{};       ///< per task: inputs without a token
  std::array<std::int64_t, kMaxTasks> path_ns{};     ///< longest remaining path of the iteration
  std::array<std::int64_t, kMaxTasks> started{};     ///< instances
  std::array<std::int64_t, kMaxTasks> ended{};       ///< instances
  std::array<std::int64_t, kMaxTasks> end_ns{};      ///< of the running instance
  std::array<std::int64_t, kMaxTasks> start_ns{};    ///< of the latest instance
  std::array<std::uint64_t, kMaxTasks> ends_then{};  ///< tasks that ended when it started
  std::uint64_t ready = 0;                           ///< tasks that have their inputs
  std::uint64_t running = 0;
  std::uint64_t behind = 0;  ///< tasks that have not ended the oldest open iteration
  std::uint64_t beyond = 0;  ///< tasks that have started every iteration that may be open
  std::uint64_t ended_now = 0;
  std::int64_t look_ahead = 3;  ///< iterations that may be open: keeps the state finite
  std::int64_t done = 0;        ///< iterations that have ended
  std::int64_t now_ns = 0;

  std::vector<ScheduledTask> timeline;
  std::vector<std::uint64_t> states;      ///< count words for each look at the state
  std::vector<std::size_t> state_starts;  ///< length of the timeline at each look
  std::vector<std::int64_t> state_time_ns;
  std::size_t repeated = 0;     ///< the look that equals the last one
  std::size_t period_end = 0;   ///< length of the timeline at the last look
  std::int64_t iterations = 0;  ///< of the repeating sequence; 0: none was found

  std::vector<TaskInstance> strict;
  sim::PeriodicSequence sequence;
  sim::OrderRater rater;
  SteadyOrder result;
};

void SteadySolver::Workspace::read_edges() {
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
void SteadySolver::Workspace::find_remaining_paths() {
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

void SteadySolver::Workspace::prepare(const CompactTasks& what) {
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

void SteadySolver::Workspace::start(std::size_t task) {
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
void SteadySolver::Workspace::start_ready_tasks() {
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
void SteadySolver::Workspace::advance() {
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
void SteadySolver::Workspace::open_next_iteration() {
  ++done;
  beyond = 0;
  for (std::size_t task = 0; task < count; ++task) {
    if (ended[task] == done) behind |= bit(task);
    if (started[task] >= done + look_ahead) beyond |= bit(task);
  }
}

/// Looks at the state, relative to the iteration that has just ended, and compares it with those
/// before.
bool SteadySolver::Workspace::state_repeats() {
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
void SteadySolver::Workspace::run(std::int64_t k_eval) {
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

/// A task whose end made the latest instance of `task` start when it did, and the iteration
/// distance to it. False when there is none: the window of open iterations held it back.
bool SteadySolver::Workspace::find_cause(std::size_t task,
                                         std::size_t* cause,
                                         std::int64_t* delta) const {
  const std::uint64_t ends = ends_then[task];
  // The latest instances are those of one period; what ended then may have started again since.
  const auto distance = [&](std::size_t before) {
    const bool again = start_ns[before] + tasks->duration_ns[before] != start_ns[task];
    return started[task] - started[before] + (again ? 1 : 0);
  };
  const std::uint64_t same_gpus = ends & (tasks->conflicts[task] | bit(task));
  if (same_gpus != 0) {
    *cause = lowest(same_gpus);
    *delta = *cause == task ? 1 : distance(*cause);
    return true;
  }
  for (std::size_t i = first_input[task]; i < first_input[task + 1]; ++i) {
    const Input& input = inputs[i];
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
    duration_ns += tasks->duration_ns[static_cast<std::size_t>(id)];
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
  while (strict.size() < count) {
    std::size_t next = count;
    for (std::size_t task = 0; task < count; ++task) {
      if ((placed & bit(task)) != 0) continue;
      bool is_open = true;
      for (std::size_t i = first_input[task]; i < first_input[task + 1]; ++i) {
        is_open &= inputs[i].delta != 0 || (placed & bit(inputs[i].from)) != 0;
      }
      if (is_open && (next == count || path_ns[task] > path_ns[next])) next = task;
    }
    check(next < count, "the tasks of one iteration wait for each other in a cycle");
    placed |= bit(next);
    strict.push_back({static_cast<std::int32_t>(next), 0});
  }
}

void SteadySolver::Workspace::rate_sequence() {
  list_strict_order();
  sequence.starts.clear();
  sequence.iterations = std::max<std::int64_t>(1, iterations);
  if (iterations == 0) sequence.starts = strict;
  for (std::size_t i = state_starts[repeated]; iterations != 0 && i < period_end; ++i) {
    sequence.starts.push_back({timeline[i].task, timeline[i].iteration});
  }
  rater.rate(*tasks, sequence, strict, &result);
}

SteadySolver::SteadySolver() : workspace_(new Workspace) {}
SteadySolver::~SteadySolver() = default;

const SteadyOrder& SteadySolver::solve(const CompactTasks& tasks) {
  Workspace& work = *workspace_;
  work.prepare(tasks);
  work.run(0);
  const bool every_iteration =
      work.iterations == 1 &&
      work.walk_critical_cycle(work.now_ns - work.state_time_ns[work.repeated]);
  if (!every_iteration) work.rate_sequence();
  return work.result;
}

const SteadyOrder& SteadySolver::solve(const CompactTasks& tasks,
                                       std::int64_t k_eval,
                                       std::vector<ScheduledTask>* timeline) {
  solve(tasks);
  Workspace& work = *workspace_;
  if (work.iterations == 1) {
    work.result.order.clear();
    for (std::size_t i = work.state_starts[work.repeated]; i < work.period_end; ++i) {
      work.result.order.push_back({work.timeline[i].task, work.timeline[i].iteration});
    }
  }
  work.prepare(tasks);
  work.run(k_eval);
  *timeline = work.timeline;
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
