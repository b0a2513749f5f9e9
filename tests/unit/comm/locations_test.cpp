#include <gmock/gmock.h>

#include "rpeg/base/error.h"
#include "rpeg/comm/loopback.h"
#include "rpeg/comm/mpi.h"

namespace rpeg {
namespace {

// Six ranks: nodes led by ranks 0, 2 and 3, one more node led by 5; placed round robin in part.
std::vector<RankHost> four_nodes() {
  return {{0, ""}, {0, ""}, {2, ""}, {3, ""}, {2, ""}, {5, ""}};
}

TEST(AssignLocations, NumbersNodesByTheirFirstRankAndSlotsByRank) {
  const auto locations = assign_locations(four_nodes(), 0);
  EXPECT_THAT(locations,
              testing::ElementsAre(RankLocation{0, 0, 0},
                                   RankLocation{0, 0, 1},
                                   RankLocation{0, 1, 0},
                                   RankLocation{0, 2, 0},
                                   RankLocation{0, 1, 1},
                                   RankLocation{0, 3, 0}));
}

TEST(AssignLocations, CutsNodesIntoEqualRacks) {
  const auto locations = assign_locations(four_nodes(), 2);
  EXPECT_EQ(locations[2], (RankLocation{0, 1, 0}));
  EXPECT_EQ(locations[3], (RankLocation{1, 0, 0}));
  EXPECT_EQ(locations[5], (RankLocation{1, 1, 0}));
}

TEST(AssignLocations, RefusesRacksThatDoNotDivide) {
  try {
    assign_locations(four_nodes(), 3);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), testing::HasSubstr("4 nodes"));
    EXPECT_THAT(error.what(), testing::HasSubstr("3 equal racks"));
  }
}

TEST(AssignLocations, ReadsRacksFromTopologyAddresses) {
  const std::vector<RankHost> hosts = {
      {0, "spine.rack7.node0"}, {1, "spine.rack2.node0"}, {2, "spine.rack7.node1"}};
  EXPECT_THAT(
      assign_locations(hosts, 0),
      testing::ElementsAre(RankLocation{0, 0, 0}, RankLocation{1, 0, 0}, RankLocation{0, 1, 0}));
}

TEST(DiscoverLocations, LoopbackRanksShareOneNode) {
  const auto ranks = make_loopback(1);
  EXPECT_THAT(discover_locations(*ranks[0], 0, "spine.rack1.node9"),
              testing::ElementsAre(RankLocation{0, 0, 0}));
}

}  // namespace
}  // namespace rpeg
