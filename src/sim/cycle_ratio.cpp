#include "sim/cycle_ratio.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "rpeg/base/error.h"
#include "rpeg/sim/simulator.h"

namespace rpeg::sim {
namespace {

constexpr double kLongestTask_s = 1e6;

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
CycleRatio cycle_of(const Labels& labels,
                    const std::vector<std::int64_t>& duration_ns,
                    const std::vector<TaskEdge>& edges) {
  const auto parent = [&](std::int32_t node) -> const TaskEdge& {
    const std::int32_t edge = labels.parent_edge[static_cast<std::size_t>(node)];
    check(edge >= 0, "a positive cycle has a parent edge at every node");
    return edges[static_cast<std::size_t>(edge)];
  };
  std::int32_t node = labels.raised_last;
  for (std::size_t i = 0; i < labels.value.size(); ++i) node = parent(node).from;
  CycleRatio found{0, 0, {}};
  const std::int32_t first = node;
  do {
    const TaskEdge& edge = parent(node);
    found.duration_ns += duration_ns[static_cast<std::size_t>(edge.from)];
    found.delta += edge.delta;
    found.cycle.push_back(node);
    node = edge.from;
  } while (node != first);
  std::reverse(found.cycle.begin(), found.cycle.end());
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
                 const CycleRatio& ratio) {
  return longest_paths(duration_ns.size(), edges, [&](const TaskEdge& edge) {
    return duration_ns[static_cast<std::size_t>(edge.from)] * ratio.delta -
           edge.delta * ratio.duration_ns;
  });
}

}  // namespace

std::int64_t to_ns(double seconds) {
  check(std::isfinite(seconds) && seconds >= 0.0,
        "a task duration is finite and not negative, found " + std::to_string(seconds));
  // A bad plan of a large job can take years; saturating keeps sums within 64 bits and loses
  // nothing, since no plan near that length is the best.
  return std::llround(std::min(seconds, kLongestTask_s) * 1e9);
}

std::optional<CycleRatio> find_maximum_cycle_ratio(const std::vector<std::int64_t>& duration_ns,
                                                   const std::vector<TaskEdge>& edges) {
  if (has_deadlock(duration_ns.size(), edges)) return std::nullopt;
  // Parametric search: while some cycle is positive at the current ratio, its own ratio is larger.
  // Every round moves to the ratio of another cycle, so the search ends, at the exact maximum.
  CycleRatio best;
  while (true) {
    const Labels labels = labels_at(duration_ns, edges, best);
    if (labels.raised_last < 0) return best;
    best = cycle_of(labels, duration_ns, edges);
  }
}

std::vector<std::int64_t> earliest_starts(const std::vector<std::int64_t>& duration_ns,
                                          const std::vector<TaskEdge>& edges,
                                          const CycleRatio& ratio) {
  Labels labels = labels_at(duration_ns, edges, ratio);
  check(labels.raised_last < 0, "starts exist at the maximum cycle ratio");
  const std::int64_t least = labels.value.empty() ? 0 : *std::ranges::min_element(labels.value);
  for (std::int64_t& value : labels.value) value -= least;
  return labels.value;
}

}  // namespace rpeg::sim

namespace rpeg {

double maximum_cycle_ratio(const std::vector<double>& duration_s,
                           const std::vector<TaskEdge>& edges,
                           std::vector<std::int32_t>* cycle) {
  std::vector<std::int64_t> duration_ns;
  duration_ns.reserve(duration_s.size());
  for (const double seconds : duration_s) duration_ns.push_back(sim::to_ns(seconds));
  const auto ratio = sim::find_maximum_cycle_ratio(duration_ns, edges);
  check(ratio.has_value(), "the graph has a cycle whose iteration distances do not sum to >= 1");
  if (cycle != nullptr) *cycle = ratio->cycle;
  return static_cast<double>(ratio->duration_ns) / static_cast<double>(ratio->delta) / 1e9;
}

}  // namespace rpeg
