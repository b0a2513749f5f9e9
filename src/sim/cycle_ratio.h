#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rpeg/cost/cost_model.h"

namespace rpeg::sim {

/// A maximum cycle ratio as an exact fraction: duration_ns / delta.
struct CycleRatio {
  std::int64_t duration_ns = 0;
  std::int64_t delta = 1;
  std::vector<std::int32_t> cycle;  ///< nodes of a critical cycle, empty when there is none
};

/// Seconds to whole nanoseconds: done once, on entry to the simulator, so that ties are exact. What
/// lasts longer than kLongestTask_s counts as so long.
std::int64_t to_ns(double seconds);

/// Finds maximum cycle ratios by Howard's policy iteration in exact integer arithmetic (J.
/// Cochet-Terrasson, G. Cohen, S. Gaubert, M. McGettrick, J.-P. Quadrat: Numerical computation of
/// spectral elements in max-plus algebra, 1998). Keeps its working memory between calls.
class CycleRatioSolver {
 public:
  /// The maximum of Σ duration / Σ δ over all cycles; a ratio of 0 without cycles; nullptr when
  /// some cycle has a non-positive Σ δ (its tasks would wait for each other). The result lives
  /// until the next call.
  const CycleRatio* solve(const std::vector<std::int64_t>& duration_ns,
                          const std::vector<TaskEdge>& edges);

  /// Whether some cycle has a larger ratio than `ratio`, or a non-positive Σ δ (with positive
  /// durations). Fast when most edges lead to later nodes of the list of edges.
  bool exceeds(const std::vector<std::int64_t>& duration_ns,
               const std::vector<TaskEdge>& edges,
               const CycleRatio& ratio);

 private:
  /// What following the policy from a node leads to.
  struct Outlook {
    std::int64_t duration_ns = 0;  ///< of the cycle, in lowest terms
    std::int64_t delta = 0;
    std::int64_t value = 0;  ///< gain on the way, in units of 1 ns / delta
  };

  bool choose_first_policy(std::size_t nodes, const std::vector<TaskEdge>& edges);
  bool evaluate(const std::vector<std::int64_t>& duration_ns, const std::vector<TaskEdge>& edges);
  void evaluate_cycle(std::int32_t first,
                      const std::vector<std::int64_t>& duration_ns,
                      const std::vector<TaskEdge>& edges);
  bool improve(const std::vector<std::int64_t>& duration_ns, const std::vector<TaskEdge>& edges);
  void read_best(const std::vector<std::int64_t>& duration_ns, const std::vector<TaskEdge>& edges);

  std::vector<std::int32_t> policy_;  ///< per node: the edge it follows; -1: it reaches no cycle
  std::vector<Outlook> outlook_;
  std::vector<std::int32_t> visit_;  ///< per node: 0 new, else the walk that has seen it
  std::vector<std::int32_t> path_;
  std::vector<std::int64_t> labels_;
  CycleRatio result_;
};

/// Earliest starts of instance 0 when every instance k starts k·ratio later, in units of
/// 1 ns / ratio.delta; the smallest is 0.
std::vector<std::int64_t> earliest_starts(const std::vector<std::int64_t>& duration_ns,
                                          const std::vector<TaskEdge>& edges,
                                          const CycleRatio& ratio);

}  // namespace rpeg::sim
