#include "rpeg/comm/loopback.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "support/comm_parity.h"

namespace rpeg {
namespace {

class Loopback : public testing::TestWithParam<int> {
 protected:
  static void run(const std::function<void(Comm&)>& body) {
    const auto ranks = make_loopback(GetParam());
    std::vector<std::thread> threads;
    for (const auto& comm : ranks) {
      threads.emplace_back([&] { body(*comm); });
    }
    for (auto& thread : threads) {
      thread.join();
    }
  }
};

TEST_P(Loopback, SumsPredictableValuesExactly) { run(test::expect_predictable_sums); }
TEST_P(Loopback, SumsInRankOrderBitForBit) { run(test::expect_sums_in_rank_order); }
TEST_P(Loopback, KeepsMessagesInOrder) { run(test::expect_messages_in_order); }
TEST_P(Loopback, ReducesInTwoHalves) { run(test::expect_all_reduce_in_two_halves); }
TEST_P(Loopback, BroadcastsFromEveryRoot) { run(test::expect_broadcast_from_every_root); }
TEST_P(Loopback, ExpectsMessages) { run(test::expect_announced_messages); }
TEST_P(Loopback, GathersUnevenSizes) { run(test::expect_uneven_all_gather); }
TEST_P(Loopback, MakesPermutedSubgroups) { run(test::expect_permuted_subgroups); }
TEST_P(Loopback, BarrierWaitsForAll) { run(test::expect_barrier_waits_for_all); }
TEST_P(Loopback, NamesWhoWaitedForWhom) { run(test::expect_timeout_text); }

INSTANTIATE_TEST_SUITE_P(Ranks, Loopback, testing::Values(1, 2, 3, 5));

}  // namespace
}  // namespace rpeg
