#include "sim/cycle_ratio.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "rpeg/base/error.h"
#include "rpeg/sim/simulator.h"

namespace rpeg::sim {
namespace {

std::size_t at(std::int32_t node) { return static_cast<std::size_t>(node); }

/// Longest-path labels (Bellman–Ford) from 0 everywhere; false when a positive cycle keeps them
/// from converging.
template <typename Weight>
bool find_longest_paths(std::size_t nodes,
                        const std::vector<TaskEdge>& edges,
                        Weight weight,
                        std::vector<std::int64_t>* labels) {
  labels->assign(nodes, 0);
  for (std::size_t round = 0; round <= nodes; ++round) {
    bool raised = false;
    for (const TaskEdge& edge : edges) {
      const std::int64_t candidate = (*labels)[at(edge.from)] + weight(edge);
      if (candidate <= (*labels)[at(edge.to)]) continue;
      (*labels)[at(edge.to)] = candidate;
      raised = true;
    }
    if (!raised) return true;
  }
  return false;
}

/// What an edge gains against a ratio, in units of 1 ns / delta.
std::int64_t gain(const TaskEdge& edge,
                  const std::vector<std::int64_t>& duration_ns,
                  std::int64_t ratio_ns,
                  std::int64_t ratio_delta) {
  return duration_ns[at(edge.from)] * ratio_delta - edge.delta * ratio_ns;
}

/// A cycle of at most n edges has Σ δ ≤ 0 exactly when Σ (1 − (n+1)·δ) > 0.
bool has_deadlock(std::size_t nodes,
                  const std::vector<TaskEdge>& edges,
                  std::vector<std::int64_t>* labels) {
  const auto scale = static_cast<std::int64_t>(nodes) + 1;
  const auto weight = [scale](const TaskEdge& edge) { return 1 - scale * edge.delta; };
  return !find_longest_paths(nodes, edges, weight, labels);
}

}  // namespace

std::int64_t to_ns(double seconds) {
  if (!(seconds >= 0.0 && std::isfinite(seconds))) {
    throw Error(ErrorKind::kInternal,
                "internal error: a task duration is finite and not negative, found " +
                    std::to_string(seconds));
  }
  return std::llround(std::min(seconds, kLongestTask_s) * 1e9);
}

/// Every node follows its edge of least δ among those that can go on for ever. False: no cycle.
bool CycleRatioSolver::choose_first_policy(std::size_t nodes, const std::vector<TaskEdge>& edges) {
  policy_.assign(nodes, 0);
  std::size_t left = nodes;
  for (bool changed = true; changed;) {
    changed = false;
    visit_.assign(nodes, 0);
    for (const TaskEdge& edge : edges) {
      if (policy_[at(edge.to)] >= 0) visit_[at(edge.from)] = 1;
    }
    for (std::size_t node = 0; node < nodes; ++node) {
      if (policy_[node] < 0 || visit_[node] != 0) continue;
      policy_[node] = -1;
      --left;
      changed = true;
    }
  }
  visit_.assign(nodes, -1);
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const std::size_t from = at(edges[i].from);
    if (policy_[from] < 0 || policy_[at(edges[i].to)] < 0) continue;
    const std::int32_t held = visit_[from];
    if (held < 0 || edges[i].delta < edges[at(held)].delta) {
      visit_[from] = static_cast<std::int32_t>(i);
    }
  }
  for (std::size_t node = 0; node < nodes; ++node) {
    if (policy_[node] >= 0) policy_[node] = visit_[node];
  }
  return left > 0;
}

/// Ratio and values of the policy's cycle through `first`. A root whose ratio has not changed keeps
/// its value: values then only grow, and the iteration ends.
void CycleRatioSolver::evaluate_cycle(std::int32_t first,
                                      const std::vector<std::int64_t>& duration_ns,
                                      const std::vector<TaskEdge>& edges) {
  std::int64_t duration = 0;
  std::int64_t delta = 0;
  std::int32_t node = first;
  do {
    const TaskEdge& edge = edges[at(policy_[at(node)])];
    duration += duration_ns[at(node)];
    delta += edge.delta;
    node = edge.to;
  } while (node != first);
  const std::int64_t divisor = std::max<std::int64_t>(1, std::gcd(duration, delta));
  Outlook& root = outlook_[at(first)];
  const Outlook now{duration / divisor, delta / divisor, 0};
  if (root.duration_ns != now.duration_ns || root.delta != now.delta) root = now;
}

/// Outlook of every node under the policy.
bool CycleRatioSolver::evaluate(const std::vector<std::int64_t>& duration_ns,
                                const std::vector<TaskEdge>& edges) {
  const std::size_t nodes = policy_.size();
  visit_.assign(nodes, 0);
  for (std::size_t start = 0; start < nodes; ++start) {
    if (policy_[start] < 0 || visit_[start] != 0) continue;
    const auto walk = static_cast<std::int32_t>(start) + 1;
    path_.clear();
    auto node = static_cast<std::int32_t>(start);
    while (visit_[at(node)] == 0) {
      visit_[at(node)] = walk;
      path_.push_back(node);
      node = edges[at(policy_[at(node)])].to;
    }
    std::int32_t root = -1;
    if (visit_[at(node)] == walk) {
      root = node;
      evaluate_cycle(root, duration_ns, edges);
      if (outlook_[at(root)].delta <= 0) return false;
    }
    for (auto it = path_.rbegin(); it != path_.rend(); ++it) {
      if (*it == root) continue;
      const TaskEdge& edge = edges[at(policy_[at(*it)])];
      Outlook next = outlook_[at(edge.to)];
      next.value += gain(edge, duration_ns, next.duration_ns, next.delta);
      outlook_[at(*it)] = next;
    }
  }
  return true;
}

/// Switches nodes to better edges: towards a larger ratio first, else a larger value.
bool CycleRatioSolver::improve(const std::vector<std::int64_t>& duration_ns,
                               const std::vector<TaskEdge>& edges) {
  bool changed = false;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const TaskEdge& edge = edges[i];
    if (policy_[at(edge.from)] < 0 || policy_[at(edge.to)] < 0) continue;
    const Outlook& here = outlook_[at(edge.from)];
    const Outlook& there = outlook_[at(edge.to)];
    if (there.duration_ns * here.delta <= here.duration_ns * there.delta) continue;
    // The outlook of the node is known anew only after evaluation; keep the best so far.
    policy_[at(edge.from)] = static_cast<std::int32_t>(i);
    outlook_[at(edge.from)] = {there.duration_ns, there.delta, 0};
    changed = true;
  }
  if (changed) return true;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const TaskEdge& edge = edges[i];
    if (policy_[at(edge.from)] < 0 || policy_[at(edge.to)] < 0) continue;
    Outlook& here = outlook_[at(edge.from)];
    const Outlook& there = outlook_[at(edge.to)];
    if (there.duration_ns != here.duration_ns || there.delta != here.delta) continue;
    const std::int64_t value = there.value + gain(edge, duration_ns, here.duration_ns, here.delta);
    if (value <= here.value) continue;
    policy_[at(edge.from)] = static_cast<std::int32_t>(i);
    here.value = value;
    changed = true;
  }
  return changed;
}

/// The policy's cycle of the largest ratio.
void CycleRatioSolver::read_best(const std::vector<std::int64_t>& duration_ns,
                                 const std::vector<TaskEdge>& edges) {
  std::int32_t best = -1;
  for (std::size_t node = 0; node < policy_.size(); ++node) {
    if (policy_[node] < 0) continue;
    const Outlook& now = outlook_[node];
    if (best >= 0 &&
        now.duration_ns * outlook_[at(best)].delta <= outlook_[at(best)].duration_ns * now.delta) {
      continue;
    }
    best = static_cast<std::int32_t>(node);
  }
  std::int32_t node = best;
  for (std::size_t i = 0; i < policy_.size(); ++i) node = edges[at(policy_[at(node)])].to;
  const std::int32_t first = node;
  result_.duration_ns = 0;
  result_.delta = 0;
  result_.cycle.clear();
  do {
    const TaskEdge& edge = edges[at(policy_[at(node)])];
    result_.duration_ns += duration_ns[at(node)];
    result_.delta += edge.delta;
    result_.cycle.push_back(node);
    node = edge.to;
  } while (node != first);
}

const CycleRatio* CycleRatioSolver::solve(const std::vector<std::int64_t>& duration_ns,
                                          const std::vector<TaskEdge>& edges) {
  const std::size_t nodes = duration_ns.size();
  if (has_deadlock(nodes, edges, &labels_)) return nullptr;
  result_.duration_ns = 0;
  result_.delta = 1;
  result_.cycle.clear();
  if (!choose_first_policy(nodes, edges)) return &result_;
  outlook_.assign(nodes, {});
  const std::size_t most_rounds = 1000 + nodes * edges.size();
  for (std::size_t round = 0;; ++round) {
    check(round < most_rounds, "policy iteration ends");
    check(evaluate(duration_ns, edges), "without deadlock every cycle has a positive distance");
    if (!improve(duration_ns, edges)) break;
  }
  read_best(duration_ns, edges);
  return &result_;
}

bool CycleRatioSolver::exceeds(const std::vector<std::int64_t>& duration_ns,
                               const std::vector<TaskEdge>& edges,
                               const CycleRatio& ratio) {
  const auto weight = [&](const TaskEdge& edge) {
    return gain(edge, duration_ns, ratio.duration_ns, ratio.delta);
  };
  return !find_longest_paths(duration_ns.size(), edges, weight, &labels_);
}

std::vector<std::int64_t> earliest_starts(const std::vector<std::int64_t>& duration_ns,
                                          const std::vector<TaskEdge>& edges,
                                          const CycleRatio& ratio) {
  std::vector<std::int64_t> starts;
  const auto weight = [&](const TaskEdge& edge) {
    return gain(edge, duration_ns, ratio.duration_ns, ratio.delta);
  };
  check(find_longest_paths(duration_ns.size(), edges, weight, &starts),
        "starts exist at the maximum cycle ratio");
  const std::int64_t least = starts.empty() ? 0 : *std::ranges::min_element(starts);
  for (std::int64_t& start : starts) start -= least;
  return starts;
}

}  // namespace rpeg::sim

namespace rpeg {

double maximum_cycle_ratio(const std::vector<double>& duration_s,
                           const std::vector<TaskEdge>& edges,
                           std::vector<std::int32_t>* cycle) {
  std::vector<std::int64_t> duration_ns;
  duration_ns.reserve(duration_s.size());
  for (const double seconds : duration_s) duration_ns.push_back(sim::to_ns(seconds));
  sim::CycleRatioSolver solver;
  const sim::CycleRatio* ratio = solver.solve(duration_ns, edges);
  check(ratio != nullptr, "the graph has a cycle whose iteration distances do not sum to >= 1");
  if (cycle != nullptr) *cycle = ratio->cycle;
  return static_cast<double>(ratio->duration_ns) / static_cast<double>(ratio->delta) / 1e9;
}

}  // namespace rpeg
