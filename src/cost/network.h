#pragma once

#include <vector>

#include "rpeg/plan/plan.h"
#include "rpeg/profile/hardware_profile.h"

// Which network tiers the communication groups of a block cross, and what collectives cost there.

namespace rpeg {

/// The axis of a block along which a group of ranks runs.
enum class GroupAxis { kTensor, kData, kBlock };

/// How the members of a communication group lie in the cluster.
struct GroupShape {
  int size = 1;
  Tier slowest = Tier::kNode;  ///< the slowest tier between any two members
  /// Members per node, nodes per rack, racks, when every node and rack has equally many; else
  /// `even` is false.
  int per_node = 1;
  int nodes_per_rack = 1;
  int racks = 1;
  bool even = true;
  /// Groups of the axis that leave a node (a rack) at once, through its one uplink; 1 where the
  /// group stays inside.
  int node_groups = 1;
  int rack_groups = 1;
  bool operator==(const GroupShape&) const = default;
};

/// The distinct shapes of all groups of one axis. Position-free: it depends on the extent of the
/// block, not on where it lies. Constant time when groups are aligned with nodes and racks, else
/// one visit to each node of the groups that may differ.
std::vector<GroupShape> group_shapes(const VertexPlan& plan, GroupAxis axis);
/// The same by visiting nodes in any case (the reference for the shortcut).
std::vector<GroupShape> enumerate_group_shapes(const VertexPlan& plan, GroupAxis axis);

/// The slowest tier inside a block.
Tier slowest_tier(const Placement& placement);

/// Cost of a collective of the slowest of the groups, as a line in the bytes n of the full
/// (gathered) buffer. Between a flat ring over the slowest tier and a hierarchy of rings (reduce-
/// scatter up, all-gather down) the one is taken that is faster at `nominal_bytes`. Where the
/// profile has the rate of an uplink, all that cross it at once share it: in a hierarchy every GPU
/// of the block, in flat rings one GPU a ring.
AlphaBeta all_reduce_cost(const std::vector<GroupShape>& groups,
                          const HardwareProfile& profile,
                          double nominal_bytes);
/// All-gather or reduce-scatter: each is half of an all-reduce.
AlphaBeta all_gather_cost(const std::vector<GroupShape>& groups,
                          const HardwareProfile& profile,
                          double nominal_bytes);

/// One message to another rank, as a line that is right at `nominal_bytes`.
AlphaBeta point_to_point_cost(const HardwareProfile& profile, Tier tier, double nominal_bytes);

/// A message of every rank of a pipeline stage to the next stage, between the two that are
/// farthest apart; the tp · dp senders share the uplinks.
AlphaBeta stage_send_cost(const VertexPlan& plan,
                          const HardwareProfile& profile,
                          double nominal_bytes);

inline double seconds(const AlphaBeta& cost, double bytes) {
  return cost.alpha_s + bytes * cost.beta_s_per_byte;
}

}  // namespace rpeg
