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

/// Seconds to whole nanoseconds: done once, on entry to the simulator, so that ties are exact.
std::int64_t to_ns(double seconds);

/// The maximum of Σ duration / Σ δ over all cycles, in exact integer arithmetic; nothing when some
/// cycle has a non-positive Σ δ (its tasks would wait for each other).
std::optional<CycleRatio> find_maximum_cycle_ratio(const std::vector<std::int64_t>& duration_ns,
                                                   const std::vector<TaskEdge>& edges);

/// Earliest starts of instance 0 when every instance k starts k·ratio later, in units of
/// 1 ns / ratio.delta; the smallest is 0.
std::vector<std::int64_t> earliest_starts(const std::vector<std::int64_t>& duration_ns,
                                          const std::vector<TaskEdge>& edges,
                                          const CycleRatio& ratio);

}  // namespace rpeg::sim
