#include "cost/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/pipeline.h"
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

TEST(PipelineTime, CutsUnevenMicroBatches) {
  const MicroBatches batches = cut_micro_batches(10, 4);  // 3, 3, 2, 2
  EXPECT_EQ(batches.large_units * batches.large_count, 6.0);
  EXPECT_EQ(batches.small_units * batches.small_count, 4.0);
}

TEST(PipelineTime, ExposesTheSendsThatOneForwardOneBackwardCannotHide) {
  EXPECT_DOUBLE_EQ(one_f_one_b_sends_s(1.0, 1, 5), 0.0);
  EXPECT_DOUBLE_EQ(one_f_one_b_sends_s(1.0, 4, 8), 2 * 8 * 3 / 4.0 + 4);
  EXPECT_DOUBLE_EQ(one_f_one_b_sends_s(1.0, 4, 1), 6.0);  // one micro-batch there and back
}

}  // namespace
}  // namespace rpeg
