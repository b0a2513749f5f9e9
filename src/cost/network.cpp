#include "cost/network.h"

#include <algorithm>
#include <array>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// Members start, start + stride, … (size of them); groups cover all ranks of the block.
struct Axis {
  int stride = 1;
  int size = 1;
};

Axis axis_of(const Parallelism& p, GroupAxis axis) {
  switch (axis) {
    case GroupAxis::kTensor:
      return {1, p.tp};
    case GroupAxis::kData:
      return {p.tp, p.dp};
    case GroupAxis::kBlock:
      return {1, p.gpus()};
  }
  throw Error(ErrorKind::kInternal, "cost: unknown axis");
}

Tier tier_of(int nodes, int racks) {
  if (racks > 1) return Tier::kCluster;
  return nodes > 1 ? Tier::kRack : Tier::kNode;
}

/// Splits `size` members at `stride` into units of `unit` positions. Returns members per unit, or 0
/// when groups do not all split alike.
int members_per_unit(int stride, int size, int unit) {
  const int span = stride * size;
  if (unit % span == 0) return size;
  if (stride % unit == 0) return 1;
  if (unit % stride == 0 && span % unit == 0) return unit / stride;
  return 0;
}

/// Shape of one group, node by node.
GroupShape count_members(const Placement& block, const Axis& axis, int start) {
  const int node_size = block.gpus.count();
  const int rack_nodes = block.nodes.count();
  GroupShape shape{.size = axis.size, .per_node = 0, .nodes_per_rack = 0, .racks = 0};
  int rack = -1;
  int nodes = 0;
  int total_nodes = 0;
  const auto close = [&shape](int count, int GroupShape::* field) {
    if (count == 0) return;
    if (shape.*field != 0 && shape.*field != count) shape.even = false;
    shape.*field = std::max(shape.*field, count);
  };
  // Ranks ascend, so the members of a node, and the nodes of a rack, follow one another.
  for (int first = 0; first < axis.size; ++total_nodes) {
    const int node = (start + first * axis.stride) / node_size;
    const int beyond = ((node + 1) * node_size - start + axis.stride - 1) / axis.stride;
    const int last = std::min(axis.size, beyond);
    close(last - first, &GroupShape::per_node);
    first = last;
    if (node / rack_nodes != rack) {
      close(nodes, &GroupShape::nodes_per_rack);
      nodes = 0;
      ++shape.racks;
      rack = node / rack_nodes;
    }
    ++nodes;
  }
  close(nodes, &GroupShape::nodes_per_rack);
  shape.slowest = tier_of(total_nodes, shape.racks);
  return shape;
}

/// Cost of one ring of p members of which each holds n/p at the end: a line in n.
AlphaBeta ring(const HardwareProfile& profile, Tier tier, int p, double passes) {
  const auto t = static_cast<std::size_t>(tier);
  return {profile.collective[t].alpha_s + passes * (p - 1) * profile.alpha_step_s[t],
          passes * (p - 1) / p * profile.collective[t].beta_s_per_byte};
}

AlphaBeta faster(const AlphaBeta& a, const AlphaBeta& b, double bytes) {
  return seconds(a, bytes) <= seconds(b, bytes) ? a : b;
}

/// `passes`: 2 for an all-reduce, 1 for an all-gather or reduce-scatter.
AlphaBeta group_cost(const GroupShape& group,
                     const HardwareProfile& profile,
                     double passes,
                     double bytes) {
  if (group.size == 1) return {};
  const AlphaBeta flat = ring(profile, group.slowest, group.size, passes);
  if (!group.even) return flat;
  const std::array<int, kTiers> members{group.per_node, group.nodes_per_rack, group.racks};
  AlphaBeta sum;
  double share = 1.0;  // of the buffer that is left for this tier
  for (std::size_t t = 0; t < kTiers; ++t) {
    if (members[t] == 1) continue;
    // Below the top an all-reduce is two calls: reduce-scatter up, all-gather down.
    const bool top = static_cast<Tier>(t) == group.slowest;
    const double calls = top ? 1.0 : passes;
    const AlphaBeta cost = ring(profile, static_cast<Tier>(t), members[t], passes / calls);
    sum.alpha_s += calls * cost.alpha_s;
    sum.beta_s_per_byte += calls * share * cost.beta_s_per_byte;
    share /= members[t];
  }
  return faster(flat, sum, bytes);
}

AlphaBeta slowest_group_cost(const std::vector<GroupShape>& groups,
                             const HardwareProfile& profile,
                             double passes,
                             double bytes) {
  AlphaBeta worst;
  for (const GroupShape& group : groups) {
    const AlphaBeta cost = group_cost(group, profile, passes, bytes);
    if (seconds(cost, bytes) > seconds(worst, bytes)) worst = cost;
  }
  return worst;
}

}  // namespace

std::vector<GroupShape> enumerate_group_shapes(const VertexPlan& plan, GroupAxis group_axis) {
  const Axis axis = axis_of(plan.parallelism, group_axis);
  const int span = axis.stride * axis.size;
  const int node = plan.placement.gpus.count();
  const int rack = node * plan.placement.nodes.count();
  // Strides that divide a node take neighbours to the same nodes.
  const int offsets = node % axis.stride == 0 ? 1 : axis.stride;
  std::vector<GroupShape> shapes;
  for (int base = 0; base < plan.parallelism.gpus(); base += span) {
    if (base > 0 && base % rack == 0) break;  // from here on the racks repeat
    for (int offset = 0; offset < offsets; ++offset) {
      const GroupShape shape = count_members(plan.placement, axis, base + offset);
      if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
    }
  }
  return shapes;
}

std::vector<GroupShape> group_shapes(const VertexPlan& plan, GroupAxis group_axis) {
  const Axis axis = axis_of(plan.parallelism, group_axis);
  const int node = plan.placement.gpus.count();
  const int rack = node * plan.placement.nodes.count();
  const int per_node = members_per_unit(axis.stride, axis.size, node);
  const int per_rack = members_per_unit(axis.stride, axis.size, rack);
  if (per_node == 0 || per_rack == 0) return enumerate_group_shapes(plan, group_axis);
  const int racks = axis.size / per_rack;
  return {{.size = axis.size,
           .slowest = tier_of(axis.size / per_node, racks),
           .per_node = per_node,
           .nodes_per_rack = per_rack / per_node,
           .racks = racks,
           .even = true}};
}

Tier slowest_tier(const Placement& placement) {
  return tier_of(placement.nodes.count(), placement.racks.count());
}

AlphaBeta all_reduce_cost(const std::vector<GroupShape>& groups,
                          const HardwareProfile& profile,
                          double nominal_bytes) {
  return slowest_group_cost(groups, profile, 2.0, nominal_bytes);
}

AlphaBeta all_gather_cost(const std::vector<GroupShape>& groups,
                          const HardwareProfile& profile,
                          double nominal_bytes) {
  return slowest_group_cost(groups, profile, 1.0, nominal_bytes);
}

}  // namespace rpeg
