#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "search/chain.h"

namespace rpeg::search {

/// Plans of a space, and those that differ in more than the numbers of identical racks, nodes and
/// GPUs.
struct SpaceSize {
  double plans = 0.0;
  double distinct = 0.0;  ///< `plans` when there are too many blocks to count
};
SpaceSize space_size(SubPlanTable& table);

/// Scores one plan and keeps it when it is among the best, or nearest to fitting.
void look_at(Workbench& bench, const Plan& plan, ChainResult& result);

/// Every block of a cluster.
std::vector<Placement> all_blocks(const ClusterSpec& cluster);

/// Most distinct plans that `try_all` accepts.
inline constexpr double kMostPlans = 5e7;

/// Tries every distinct plan of the space: micro-batches are powers of two or the largest number.
/// What no completion can make better than the plans kept is left out (branch and bound: the load
/// of every GPU, GPU time, and cycles of the graph, from times that no plan can beat), which is not
/// an evaluation. Throws kUsage above kMostPlans.
ChainResult try_all(Workbench& bench,
                    const SpaceSize& size,
                    std::size_t top,
                    const std::atomic<bool>* stop,
                    ChainStatus& status);

}  // namespace rpeg::search
