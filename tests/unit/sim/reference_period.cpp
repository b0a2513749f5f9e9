#include <algorithm>

#include "rpeg/base/error.h"
#include "unit/sim/reference_scheduler.h"

namespace rpeg::reference {
namespace {

/// Longest-path labels (Bellman–Ford) and the edge through which each label was last raised.
struct Labels {
  std::vector<std::int64_t> value;
  std::vector<std::int32_t> parent_edge;  ///< -1: none
  std::int32_t raised_last = -1;          ///< a node raised in the last round; -1: converged
};

template <typename Weight>
Labels longest_paths(std::size_t nodes, const std::vector<TaskEdge>& edges, Weight weight) {
  Labels labels{std::vector<std::int64_t>(nodes, 0), std::vector<std::int32_t>(nodes, -1), -1};
  for (std::size_t round = 0; round <= nodes; ++round) {
    labels.raised_last = -1;
    for (std::size_t i = 0; i < edges.size(); ++i) {
      const auto from = static_cast<std::size_t>(edges[i].from);
      const auto to = static_cast<std::size_t>(edges[i].to);
      const std::int64_t candidate = labels.value[from] + weight(edges[i]);
      if (candidate > labels.value[to]) {
        labels.value[to] = candidate;
        labels.parent_edge[to] = static_cast<std::int32_t>(i);
        labels.raised_last = edges[i].to;
      }
    }
    if (labels.raised_last < 0) break;
  }
  return labels;
}

/// The positive cycle that keeps `labels` from converging.
Ratio cycle_of(const Labels& labels,
               const std::vector<std::int64_t>& duration_ns,
               const std::vector<TaskEdge>& edges) {
  const auto parent = [&](std::int32_t node) -> const TaskEdge& {
    const std::int32_t edge = labels.parent_edge[static_cast<std::size_t>(node)];
    check(edge >= 0, "a positive cycle has a parent edge at every node");
    return edges[static_cast<std::size_t>(edge)];
  };
  std::int32_t node = labels.raised_last;
  for (std::size_t i = 0; i < labels.value.size(); ++i) node = parent(node).from;
  Ratio found{0, 0};
  const std::int32_t first = node;
  do {
    const TaskEdge& edge = parent(node);
    found.duration_ns += duration_ns[static_cast<std::size_t>(edge.from)];
    found.delta += edge.delta;
    node = edge.from;
  } while (node != first);
  return found;
}

/// A cycle of at most n edges has Σ δ ≤ 0 exactly when Σ (1 − (n+1)·δ) > 0.
bool has_deadlock(std::size_t nodes, const std::vector<TaskEdge>& edges) {
  const auto scale = static_cast<std::int64_t>(nodes) + 1;
  return longest_paths(nodes, edges, [scale](const TaskEdge& edge) {
           return 1 - scale * edge.delta;
         }).raised_last >= 0;
}

Labels labels_at(const std::vector<std::int64_t>& duration_ns,
                 const std::vector<TaskEdge>& edges,
                 const Ratio& ratio) {
  return longest_paths(duration_ns.size(), edges, [&](const TaskEdge& edge) {
    return duration_ns[static_cast<std::size_t>(edge.from)] * ratio.delta -
           edge.delta * ratio.duration_ns;
  });
}

/// The first occurrence of every task from position `from` of a periodic sequence on.
std::vector<Instance> window(const PeriodicSequence& sequence,
                             std::size_t from,
                             std::size_t tasks) {
  std::vector<bool> seen(tasks, false);
  std::vector<Instance> order;
  for (std::size_t i = from; order.size() < tasks; ++i) {
    Instance now = sequence.instances[i % sequence.instances.size()];
    now.iteration += static_cast<std::int64_t>(i / sequence.instances.size()) * sequence.iterations;
    if (seen[static_cast<std::size_t>(now.task)]) continue;
    seen[static_cast<std::size_t>(now.task)] = true;
    order.push_back(now);
  }
  return order;
}

}  // namespace

/// Dependencies, and the order of the tasks on every atom with a wrap-around arc of δ = 1. Tasks
/// without atoms still run one instance at a time.
std::vector<TaskEdge> event_graph(const TaskGraph& graph, const std::vector<Instance>& order) {
  std::vector<TaskEdge> edges = graph.edges;
  std::vector<Instance> first(static_cast<std::size_t>(graph.atom_count), Instance{-1, 0});
  std::vector<Instance> last = first;
  for (const Instance& now : order) {
    const auto& atoms = graph.tasks[static_cast<std::size_t>(now.task)].atoms;
    if (atoms.empty()) edges.push_back({now.task, now.task, 1});
    for (const std::int32_t atom : atoms) {
      const auto a = static_cast<std::size_t>(atom);
      if (first[a].task < 0) {
        first[a] = now;
      } else {
        edges.push_back({last[a].task, now.task, now.iteration - last[a].iteration});
      }
      last[a] = now;
    }
  }
  for (std::size_t a = 0; a < first.size(); ++a) {
    if (first[a].task < 0) continue;
    edges.push_back({last[a].task, first[a].task, 1 + first[a].iteration - last[a].iteration});
  }
  return edges;
}

std::optional<Ratio> find_maximum_cycle_ratio(const std::vector<std::int64_t>& duration_ns,
                                              const std::vector<TaskEdge>& edges) {
  if (has_deadlock(duration_ns.size(), edges)) return std::nullopt;
  // Parametric search: while some cycle is positive at the current ratio, its own ratio is larger.
  // Every round moves to the ratio of another cycle, so the search ends, at the exact maximum.
  Ratio best;
  while (true) {
    const Labels labels = labels_at(duration_ns, edges, best);
    if (labels.raised_last < 0) return best;
    best = cycle_of(labels, duration_ns, edges);
  }
}

Period find_period(const TaskGraph& graph) {
  const ListSchedule schedule = list_schedule(graph, 5);
  const std::size_t tasks = graph.tasks.size();
  std::vector<std::vector<Instance>> candidates;
  for (std::size_t i = 0; i < schedule.sequence.instances.size(); ++i) {
    candidates.push_back(window(schedule.sequence, i, tasks));
  }
  if (schedule.sequence.iterations != 1) candidates.push_back(schedule.one_iteration);
  std::optional<Ratio> best;
  for (const auto& order : candidates) {
    const auto ratio = find_maximum_cycle_ratio(schedule.duration_ns, event_graph(graph, order));
    if (!ratio) continue;
    if (!best || ratio->duration_ns * best->delta < best->duration_ns * ratio->delta) best = ratio;
  }
  check(best.has_value(), "the schedule has an order without deadlock");
  return {*best, schedule.sequence.iterations};
}

}  // namespace rpeg::reference
