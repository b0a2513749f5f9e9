#include <gmock/gmock.h>

#include "mpi_main.h"
#include "rpeg/comm/mpi.h"
#include "support/comm_parity.h"

namespace rpeg {
namespace {

TEST(MpiComm, SumsPredictableValuesExactly) { test::expect_predictable_sums(test::world()); }
TEST(MpiComm, SumsInRankOrderBitForBit) { test::expect_sums_in_rank_order(test::world()); }
TEST(MpiComm, KeepsMessagesInOrder) { test::expect_messages_in_order(test::world()); }
TEST(MpiComm, ReducesInTwoHalves) { test::expect_all_reduce_in_two_halves(test::world()); }
TEST(MpiComm, BroadcastsFromEveryRoot) { test::expect_broadcast_from_every_root(test::world()); }
TEST(MpiComm, ExpectsMessages) { test::expect_announced_messages(test::world()); }
TEST(MpiComm, GathersUnevenSizes) { test::expect_uneven_all_gather(test::world()); }
TEST(MpiComm, MakesPermutedSubgroups) { test::expect_permuted_subgroups(test::world()); }
TEST(MpiComm, BarrierWaitsForAll) { test::expect_barrier_waits_for_all(test::world()); }
TEST(MpiComm, NamesWhoWaitedForWhom) { test::expect_timeout_text(test::world()); }

TEST(MpiComm, DiscoversOneNodeOnOneMachine) {
  const auto locations = discover_locations(test::world(), 1, "");
  ASSERT_EQ(locations.size(), static_cast<std::size_t>(test::world().size()));
  for (int rank = 0; rank < test::world().size(); ++rank) {
    EXPECT_EQ(locations[static_cast<std::size_t>(rank)], (RankLocation{0, 0, rank}));
  }
}

TEST(MpiSession, NamesItsLibrary) {
  EXPECT_THAT(MpiSession::library_version(), testing::Not(testing::IsEmpty()));
}

}  // namespace
}  // namespace rpeg
