#include "cost/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/cost/example.h"

namespace rpeg {
namespace {

GroupShape in_node(int size) { return {.size = size, .per_node = size}; }

TEST(AllReduce, FollowsTheRing) {
  HardwareProfile profile = example_profile();
  // p = 8: 2·7/8 = 1.75 bytes cross the wire for each byte of the buffer.
  const AlphaBeta cost = all_reduce_cost({in_node(8)}, profile, 1e6);
  EXPECT_DOUBLE_EQ(cost.beta_s_per_byte, 1.75 * 1e-11);
  EXPECT_DOUBLE_EQ(cost.alpha_s, 1e-5);
}

TEST(AllGather, MovesHalfOfAnAllReduce) {
  const HardwareProfile profile = example_profile();
  EXPECT_DOUBLE_EQ(all_gather_cost({in_node(8)}, profile, 1e6).beta_s_per_byte, 0.875 * 1e-11);
}

TEST(AllReduce, ClimbsTheTiersWhenThatIsFaster) {
  HardwareProfile profile = example_profile();
  const GroupShape group{
      .size = 8, .slowest = Tier::kRack, .per_node = 4, .nodes_per_rack = 2, .racks = 1};
  // Large: reduce-scatter and all-gather of 3/4 in the node, all-reduce of a quarter over 2 nodes.
  const AlphaBeta large = all_reduce_cost({group}, profile, 1e9);
  EXPECT_DOUBLE_EQ(large.beta_s_per_byte, 2 * 0.75 * 1e-11 + 2 * 0.5 * 0.25 * 1e-10);
  EXPECT_DOUBLE_EQ(large.alpha_s, 2 * 1e-5 + 2e-5);
  // Small: one flat call over the slow tier has the lower latency.
  const AlphaBeta small = all_reduce_cost({group}, profile, 8.0);
  EXPECT_DOUBLE_EQ(small.alpha_s, 2e-5);
  EXPECT_DOUBLE_EQ(small.beta_s_per_byte, 1.75 * 1e-10);
}

TEST(AllReduce, OfUnevenGroupsIsAFlatRingOverTheSlowestTier) {
  GroupShape group{.size = 3, .slowest = Tier::kRack, .per_node = 2, .nodes_per_rack = 2};
  group.even = false;
  const AlphaBeta cost = all_reduce_cost({in_node(3), group}, example_profile(), 1e9);
  EXPECT_DOUBLE_EQ(cost.beta_s_per_byte, 2.0 * 2 / 3 * 1e-10);
}

TEST(GroupShapes, OfATensorGroupThatStraddlesNodesAreSlow) {
  // Three GPUs on each of four nodes, tp 4: ranks 0-2 | 3-5 | 6-8 | 9-11, groups 0-3, 4-7, 8-11.
  const VertexPlan plan = plan_on(4, 3, {3, 1, 4});
  const auto shapes = group_shapes(plan, GroupAxis::kTensor);
  for (const GroupShape& shape : shapes) {
    EXPECT_EQ(shape.slowest, Tier::kRack);
    EXPECT_EQ(shape.size, 4);
  }
  // 3 + 1, 2 + 2, 1 + 3: the middle group is even.
  EXPECT_EQ(shapes.size(), 2U);
}

TEST(GroupShapes, TellTheTiersOfAlignedGroups) {
  // 2 nodes of 4: tp 2 in the node, dp 2 (stride 2) in the node, pp over nodes.
  const VertexPlan plan = plan_on(2, 4, {2, 2, 2});
  EXPECT_THAT(group_shapes(plan, GroupAxis::kTensor), testing::ElementsAre(in_node(2)));
  EXPECT_THAT(group_shapes(plan, GroupAxis::kData), testing::ElementsAre(in_node(2)));
  EXPECT_THAT(group_shapes(plan, GroupAxis::kBlock),
              testing::ElementsAre(GroupShape{
                  .size = 8, .slowest = Tier::kRack, .per_node = 4, .nodes_per_rack = 2}));
}

TEST(GroupShapes, ShortcutAgreesWithTheEnumeration) {
  int checked = 0;
  for (const int racks : {1, 2, 3}) {
    for (const int nodes : {1, 2, 3, 4}) {
      for (const int gpus : {1, 2, 3, 4, 8}) {
        const int total = racks * nodes * gpus;
        for (int tp = 1; tp <= total; ++tp) {
          for (int dp = 1; tp * dp <= total; ++dp) {
            if (total % (tp * dp) != 0) continue;
            const VertexPlan plan{
                {dp, total / (tp * dp), tp}, 1, {{0, racks - 1}, {0, nodes - 1}, {0, gpus - 1}}};
            for (const GroupAxis axis : {GroupAxis::kTensor, GroupAxis::kData, GroupAxis::kBlock}) {
              ASSERT_EQ(group_shapes(plan, axis), enumerate_group_shapes(plan, axis))
                  << racks << "x" << nodes << "x" << gpus << " dp " << dp << " tp " << tp;
              ++checked;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(checked, 1000);
}

TEST(SharedUplinks, AreDividedAmongTheGpusOfAHierarchy) {
  HardwareProfile profile = example_profile();
  const VertexPlan plan = plan_on(2, 4, {4, 1, 2});  // dp of four: two in each node, two groups
  const std::vector<GroupShape> groups = group_shapes(plan, GroupAxis::kData);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].node_groups, 2);
  EXPECT_EQ(groups[0].per_node, 2);
  // Up and down half the buffer inside the node, a half over two nodes: 2 · ½ · n/2 bytes. The four
  // GPUs of a node cross together: 4/B each in place of 1e-10.
  const double inside = 2 * 0.5 * 1e-11;
  EXPECT_DOUBLE_EQ(all_reduce_cost(groups, profile, 1e9).beta_s_per_byte, inside + 0.5 * 1e-10);
  profile.node_bytes_per_s = 2e10;
  EXPECT_DOUBLE_EQ(all_reduce_cost(groups, profile, 1e9).beta_s_per_byte, inside + 0.5 * 2e-10);
  // An uplink that carries all at full rate changes nothing.
  profile.node_bytes_per_s = 4e10;
  EXPECT_DOUBLE_EQ(all_reduce_cost(groups, profile, 1e9).beta_s_per_byte, inside + 0.5 * 1e-10);
}

TEST(SharedUplinks, CarryOneCrossingForEachFlatRing) {
  HardwareProfile profile = example_profile();
  profile.node_bytes_per_s = 1e10;
  // One GPU of each group in a node: four flat rings over two nodes.
  const std::vector<GroupShape> rings = group_shapes(plan_on(2, 4, {2, 1, 4}), GroupAxis::kData);
  EXPECT_EQ(rings[0].node_groups, 4);
  EXPECT_DOUBLE_EQ(all_gather_cost(rings, profile, 1e9).beta_s_per_byte, 0.5 * 4e-10);
  // One ring over all: small messages take the flat ring, at the rate of one crossing pair.
  const std::vector<GroupShape> one = group_shapes(plan_on(2, 4, {8, 1, 1}), GroupAxis::kData);
  EXPECT_EQ(one[0].node_groups, 1);
  EXPECT_DOUBLE_EQ(all_gather_cost(one, profile, 8.0).beta_s_per_byte, 7.0 / 8 * 1e-10);
}

TEST(SharedUplinks, OfRacksCarryAllNodes) {
  HardwareProfile profile = example_profile();
  const VertexPlan plan{{8, 1, 4}, 1, {{0, 1}, {0, 3}, {0, 3}}};  // dp: a GPU of each node
  const std::vector<GroupShape> groups = group_shapes(plan, GroupAxis::kData);
  EXPECT_EQ(groups[0].rack_groups, 4);
  // The rack's four members of four groups share its uplink: 16 senders.
  profile.rack_bytes_per_s = 1e9;
  const double nodes = 2 * 0.75 * 1e-10;
  const double racks = 2 * 0.5 / 4 * 16e-9;
  const AlphaBeta flat = all_reduce_cost(groups, profile, 8.0);
  EXPECT_DOUBLE_EQ(flat.beta_s_per_byte, 2 * 7.0 / 8 * 4e-9);
  EXPECT_DOUBLE_EQ(all_reduce_cost(groups, profile, 1e9).beta_s_per_byte,
                   std::min(nodes + racks, flat.beta_s_per_byte));
}

TEST(SharedUplinks, CountOnlyMisalignedGroupsThatCross) {
  // tp 2 on three GPUs of each node: 0 1 | 2 crosses | 4 5.
  const std::vector<GroupShape> groups = group_shapes(plan_on(2, 3, {3, 1, 2}), GroupAxis::kTensor);
  ASSERT_EQ(groups.size(), 2U);
  for (const GroupShape& group : groups) EXPECT_EQ(group.node_groups, 1);
  EXPECT_EQ(groups[1].slowest, Tier::kRack);
  // tp 4: the middle node has the ends of two groups.
  for (const GroupShape& group : group_shapes(plan_on(4, 3, {3, 1, 4}), GroupAxis::kTensor)) {
    EXPECT_EQ(group.node_groups, 2);
  }
}

TEST(StageSend, SharesTheUplinkAmongTheRanksOfAStage) {
  HardwareProfile profile = example_profile();
  const VertexPlan plan = plan_on(2, 4, {2, 2, 2});
  EXPECT_EQ(stage_send_cost(plan, profile, 1e6).beta_s_per_byte, 1e-10);
  profile.node_bytes_per_s = 1e10;
  EXPECT_EQ(stage_send_cost(plan, profile, 1e6).beta_s_per_byte, 4e-10);
  // Stages of two ranks: two senders at once.
  EXPECT_EQ(stage_send_cost(plan_on(2, 4, {1, 4, 2}), profile, 1e6).beta_s_per_byte, 2e-10);
  // Inside a node there is no uplink.
  EXPECT_EQ(stage_send_cost(plan_on(1, 4, {1, 2, 2}), profile, 1e6).beta_s_per_byte, 1e-11);
}

TEST(NetworkTables, ReplaceTheLineByTheSegmentAroundTheMessage) {
  HardwareProfile profile = example_profile();
  // What a rank sends, and the time: 10 µs + 1e-11 n, then 2e-11 n.
  profile.collective_table[0] = {{1e3, 1.001e-5}, {1e6, 2e-5}, {1e9, 2.0e-2}};
  const auto all_reduce_s = [&](double bytes) {
    return seconds(all_reduce_cost({in_node(2)}, profile, bytes), bytes);  // sends n
  };
  EXPECT_NEAR(all_reduce_s(1e3), 1.001e-5, 1e-15);
  EXPECT_NEAR(all_reduce_s(5.005e5), 0.5 * (1.001e-5 + 2e-5), 1e-15);
  EXPECT_NEAR(all_reduce_s(1e6), 2e-5, 1e-15);
  EXPECT_NEAR(all_reduce_s(1e9), 2e-2, 1e-12);
  EXPECT_NEAR(all_reduce_s(2e9), 4e-2, 1e-4);  // the last segment goes on
  EXPECT_NEAR(all_reduce_s(1.0), 1e-5, 1e-9);
  // An all-gather sends half as much.
  EXPECT_NEAR(seconds(all_gather_cost({in_node(2)}, profile, 2e6), 2e6), 2e-5, 1e-15);

  profile.point_to_point_table[0] = {{1e3, 5e-6}, {1e6, 5e-5}};
  EXPECT_NEAR(seconds(point_to_point_cost(profile, Tier::kNode, 1e6), 1e6), 5e-5, 1e-15);
  EXPECT_EQ(point_to_point_cost(profile, Tier::kRack, 1e6), example_profile().point_to_point[1]);
}

TEST(NetworkTables, NeverGiveANegativeLatency) {
  HardwareProfile profile = example_profile();
  profile.collective_table[0] = {{1e6, 1e-5}, {2e6, 4e-5}};  // the line would start at -20 µs
  const AlphaBeta cost = all_reduce_cost({in_node(2)}, profile, 2e6);
  EXPECT_GE(cost.alpha_s, 0.0);
  EXPECT_NEAR(seconds(cost, 2e6), 4e-5, 1e-15);
}

}  // namespace
}  // namespace rpeg
