#include "calibrate/network.h"

#include <gmock/gmock.h>

#include <thread>

#include "rpeg/comm/loopback.h"

namespace rpeg {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Two racks; rack 0 has nodes of 1 and 2 ranks, rack 1 nodes of 2 and 1: rank = rack, node, slot.
const std::vector<RankLocation> kTwoRacks = {
    {0, 0, 0}, {0, 1, 0}, {0, 1, 1}, {1, 0, 0}, {1, 0, 1}, {1, 1, 0}};

TEST(TierRanks, TakeTheFirstPlaceThatSpansTheTier) {
  EXPECT_THAT(tier_ranks(kTwoRacks, Tier::kNode), ElementsAre(1, 2));
  EXPECT_THAT(tier_ranks(kTwoRacks, Tier::kRack), ElementsAre(0, 1));
  EXPECT_THAT(tier_ranks(kTwoRacks, Tier::kCluster), ElementsAre(0, 3));
}

TEST(TierRanks, SkipRacksOfOneNode) {
  EXPECT_THAT(tier_ranks({{0, 0, 0}, {1, 0, 0}, {1, 1, 0}, {1, 2, 0}}, Tier::kRack),
              ElementsAre(1, 2, 3));
}

TEST(TierRanks, AreEmptyWhereTheJobDoesNotReach) {
  EXPECT_THAT(tier_ranks({{0, 0, 0}}, Tier::kNode), IsEmpty());
  EXPECT_THAT(tier_ranks({{0, 0, 0}, {0, 0, 1}}, Tier::kRack), IsEmpty());
  EXPECT_THAT(tier_ranks({{0, 0, 0}, {0, 1, 0}}, Tier::kCluster), IsEmpty());
}

TEST(LinkTimes, ReachEveryRankWithBytesOnTheWire) {
  const CalibrationEffort effort{.point_s = 0.01, .most_message_bytes = 4096};
  const auto ranks = make_loopback(3);
  std::vector<LinkTimes> times(3);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      times[rank] = link_times(*ranks[rank], {2, 0}, effort, [](const std::string&) {});
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  // Sizes 8, 64, 512, 4096. Two ranks: an all-reduce moves 2 · ½ n per rank, an all-gather ½ n.
  ASSERT_EQ(times[0].point_to_point.size(), 4U);
  ASSERT_EQ(times[0].collective.size(), 8U);
  EXPECT_EQ(times[0].point_to_point[3].x, 4096.0);
  EXPECT_EQ(times[0].collective[6].x, 4096.0);
  EXPECT_EQ(times[0].collective[7].x, 2048.0);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_GT(times[0].collective[i].seconds, 0.0);
    EXPECT_EQ(times[0].collective[i].seconds, times[1].collective[i].seconds);
    EXPECT_EQ(times[0].collective[i].seconds, times[2].collective[i].seconds);
  }
}

}  // namespace
}  // namespace rpeg
