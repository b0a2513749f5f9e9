#include "cost/network.h"

#include <algorithm>
#include <array>
#include <utility>

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

/// Groups of the axis with members both among the `count` ranks from `first` on and outside.
int crossing_groups(const Axis& axis, int first, int count) {
  int groups = 0;
  for (int rank = first; rank < first + count; ++rank) {
    const int member = rank % (axis.stride * axis.size) / axis.stride;
    if (member > 0 && rank - axis.stride >= first) continue;  // not the first of its group here
    const int begin = rank - member * axis.stride;
    const int end = begin + (axis.size - 1) * axis.stride;
    if (begin < first || end >= first + count) ++groups;
  }
  return groups;
}

/// Shape of one group, node by node.
GroupShape count_members(const Placement& block, const Axis& axis, int start) {
  const int node_size = block.gpus.count();
  const int rack_nodes = block.nodes.count();
  const int rack_size = node_size * rack_nodes;
  const int end = start + (axis.size - 1) * axis.stride;
  const auto leaves = [&](int unit) { return start / unit != end / unit; };
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
    if (leaves(node_size)) {
      shape.node_groups =
          std::max(shape.node_groups, crossing_groups(axis, node * node_size, node_size));
    }
    const int beyond = ((node + 1) * node_size - start + axis.stride - 1) / axis.stride;
    const int last = std::min(axis.size, beyond);
    close(last - first, &GroupShape::per_node);
    first = last;
    if (node / rack_nodes != rack) {
      close(nodes, &GroupShape::nodes_per_rack);
      nodes = 0;
      ++shape.racks;
      rack = node / rack_nodes;
      if (leaves(rack_size)) {
        shape.rack_groups =
            std::max(shape.rack_groups, crossing_groups(axis, rack * rack_size, rack_size));
      }
    }
    ++nodes;
  }
  close(nodes, &GroupShape::nodes_per_rack);
  shape.slowest = tier_of(total_nodes, shape.racks);
  return shape;
}

/// The line through the two rows (bytes, s) around `bytes`, or nearest to it. A line that would
/// start below zero gives way to the one from zero with the same time at `bytes`.
AlphaBeta table_line(const std::vector<std::pair<double, double>>& rows, double bytes) {
  if (rows.size() == 1) return {0.0, rows[0].second / rows[0].first};
  std::size_t above = 1;
  while (above + 1 < rows.size() && rows[above].first < bytes) ++above;
  const auto& [x0, y0] = rows[above - 1];
  const auto& [x1, y1] = rows[above];
  const double beta = std::max(0.0, (y1 - y0) / (x1 - x0));
  const double alpha = y0 - beta * x0;
  if (alpha >= 0.0) return {alpha, beta};
  const double at = std::max(bytes, x0);
  return {0.0, (alpha + beta * at) / at};
}

/// What crosses an uplink at once.
struct Senders {
  int node = 1;
  int rack = 1;
};

double shared_beta(const HardwareProfile& profile, Tier tier, double beta, const Senders& senders) {
  if (tier != Tier::kNode && profile.node_bytes_per_s > 0.0) {
    beta = std::max(beta, senders.node / profile.node_bytes_per_s);
  }
  if (tier == Tier::kCluster && profile.rack_bytes_per_s > 0.0) {
    beta = std::max(beta, senders.rack / profile.rack_bytes_per_s);
  }
  return beta;
}

/// Cost of one ring of p members of which each holds n/p at the end: a line in n, right at
/// `bytes`.
AlphaBeta ring(const HardwareProfile& profile,
               Tier tier,
               int p,
               double passes,
               const Senders& senders,
               double bytes) {
  const auto t = static_cast<std::size_t>(tier);
  const double sent = passes * (p - 1) / p;  // by a rank, of each byte of the buffer
  const AlphaBeta wire = profile.collective_table[t].empty()
                             ? profile.collective[t]
                             : table_line(profile.collective_table[t], sent * bytes);
  return {wire.alpha_s + passes * (p - 1) * profile.alpha_step_s[t],
          sent * shared_beta(profile, tier, wire.beta_s_per_byte, senders)};
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
  const AlphaBeta flat = ring(
      profile, group.slowest, group.size, passes, {group.node_groups, group.rack_groups}, bytes);
  if (!group.even) return flat;
  // All members work at once, each with its counterparts in other nodes and racks.
  const int on_node = group.node_groups * group.per_node;
  const Senders everyone{on_node, group.rack_groups * group.per_node * group.nodes_per_rack};
  const std::array<int, kTiers> members{group.per_node, group.nodes_per_rack, group.racks};
  AlphaBeta sum;
  double share = 1.0;  // of the buffer that is left for this tier
  for (std::size_t t = 0; t < kTiers; ++t) {
    if (members[t] == 1) continue;
    // Below the top an all-reduce is two calls: reduce-scatter up, all-gather down.
    const bool top = static_cast<Tier>(t) == group.slowest;
    const double calls = top ? 1.0 : passes;
    const AlphaBeta cost =
        ring(profile, static_cast<Tier>(t), members[t], passes / calls, everyone, share * bytes);
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
  const bool one_node = axis.size == per_node;
  return {{.size = axis.size,
           .slowest = tier_of(axis.size / per_node, racks),
           .per_node = per_node,
           .nodes_per_rack = per_rack / per_node,
           .racks = racks,
           .even = true,
           .node_groups = one_node ? 1 : node / per_node,
           .rack_groups = racks == 1 ? 1 : rack / per_rack}};
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

AlphaBeta point_to_point_cost(const HardwareProfile& profile, Tier tier, double nominal_bytes) {
  const auto t = static_cast<std::size_t>(tier);
  return profile.point_to_point_table[t].empty()
             ? profile.point_to_point[t]
             : table_line(profile.point_to_point_table[t], nominal_bytes);
}

AlphaBeta stage_send_cost(const VertexPlan& plan,
                          const HardwareProfile& profile,
                          double nominal_bytes) {
  const Placement& block = plan.placement;
  const Tier tier = slowest_tier(block);
  const int senders = plan.parallelism.dp * plan.parallelism.tp;
  const int on_node = block.gpus.count();
  AlphaBeta cost = point_to_point_cost(profile, tier, nominal_bytes);
  cost.beta_s_per_byte =
      shared_beta(profile,
                  tier,
                  cost.beta_s_per_byte,
                  {std::min(senders, on_node), std::min(senders, on_node * block.nodes.count())});
  return cost;
}

}  // namespace rpeg
