#pragma once

#include <array>
#include <optional>
#include <vector>

#include "calibrate/compute.h"
#include "rpeg/comm/mpi.h"

namespace rpeg {

/// Times of one tier over bytes on the wire of one rank.
struct LinkTimes {
  std::vector<TimedPoint> collective;      ///< all-reduce: 2 (p−1)/p · n; all-gather: (p−1)/p · n
  std::vector<TimedPoint> point_to_point;  ///< n
};

/// The ranks that measure a tier: inside a node, all of the first node that has two or more;
/// between nodes, one of each node of the first rack that has two or more nodes; between racks, one
/// of each rack. Empty when the job does not span the tier.
std::vector<int> tier_ranks(const std::vector<RankLocation>& locations, Tier tier);

/// Measures one tier; `ranks` as above, not empty. Every rank of `world` calls it and gets the same
/// times.
LinkTimes link_times(Comm& world,
                     const std::vector<int>& ranks,
                     const CalibrationEffort& effort,
                     const Announce& announce);

}  // namespace rpeg
