#pragma once

#include "search/frontier.h"

namespace rpeg::search {

/// Frontiers of a kind that lie on or below kind_frontiers, without a look at every shape: for
/// clusters that have too many. Transfers between nodes are free, every product dp * pp * tp within
/// the cluster is a block, and a range of dp is one point: the time of the largest with the GPUs of
/// the smallest.
KindFrontiers relaxed_frontiers(const SubPlanTable& table, std::size_t kind);

/// `profile` with wires that no transfer of a tensor-parallel group beats, and free wires between
/// nodes, and the least observed factor of each class on all of them.
HardwareProfile with_free_wires(HardwareProfile profile);

/// The least time of a vertex with this split on any block, `profile` being with_free_wires. It
/// does not grow with dp, micro-batches being equal, as long as generation in stages has equally
/// many prefill calls.
double relaxed_time_s(const SubPlanTable& table,
                      std::size_t kind,
                      const Parallelism& split,
                      std::int64_t micro_batches,
                      const HardwareProfile& profile);

}  // namespace rpeg::search
