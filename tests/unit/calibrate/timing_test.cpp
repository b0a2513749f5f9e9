#include "calibrate/timing.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>

#include "rpeg/comm/loopback.h"

namespace rpeg {
namespace {

void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(CallSeconds, IgnoresTheWarmUpAndDisturbances) {
  int calls = 0;
  // Slow once at first, then every third call: the undisturbed time is 2 ms.
  const double seconds = call_seconds(0.05, [&] { sleep_ms(calls++ % 3 == 0 ? 12 : 2); });
  EXPECT_GE(seconds, 0.002);
  EXPECT_LT(seconds, 0.011);
  EXPECT_GE(calls, 4);
}

TEST(CallSeconds, DoesNotRepeatACallFarBeyondItsBudget) {
  int calls = 0;
  call_seconds(0.001, [&] {
    sleep_ms(10);
    ++calls;
  });
  EXPECT_EQ(calls, 2);  // warm-up and one measured call
}

TEST(CollectiveSeconds, MakesEquallyManyCallsOnAllRanks) {
  const auto ranks = make_loopback(2);
  std::array<int, 2> calls{};
  std::array<double, 2> seconds{};
  const auto body = [&](std::size_t rank) {
    seconds[rank] = collective_seconds(*ranks[rank], 0.02, [&] {
      ++calls[rank];
      ranks[rank]->barrier();
    });
  };
  std::thread other([&] { body(1); });
  body(0);
  other.join();
  EXPECT_EQ(calls[0], calls[1]);
  EXPECT_EQ(seconds[0], seconds[1]);
  EXPECT_GT(seconds[0], 0.0);
}

}  // namespace
}  // namespace rpeg
