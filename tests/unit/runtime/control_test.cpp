// Which iterations run: the word of rank 0, stops, reports.

#include "runtime/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "rpeg/comm/loopback.h"
#include "support/copy_job.h"

namespace rpeg {
namespace {

struct Outcome {
  std::vector<std::int64_t> iterations;  ///< that ran, by rank
  std::vector<std::int64_t> reported;    ///< by rank 0, in order
  std::vector<double> sums;
};

/// Every rank walks through its iterations; `on_start` sees rank and iteration.
Outcome walk(int ranks,
             std::int64_t lead,
             std::int64_t planned,
             const std::atomic<bool>* stop,
             const std::function<void(int, std::int64_t)>& on_start) {
  auto comms = make_loopback(ranks);
  Outcome outcome;
  outcome.iterations.resize(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RunControl control(*comms[static_cast<std::size_t>(rank)],
                         lead,
                         planned,
                         stop,
                         [&](std::int64_t iteration, const Report& total) {
                           outcome.reported.push_back(iteration);
                           outcome.sums.push_back(total[Sum::kReward]);
                         });
      std::int64_t k = 0;
      for (; k < planned && control.start(k); ++k) {
        on_start(rank, k);
        Report report;
        report[Sum::kReward] = static_cast<double>(rank + 1);
        control.finish(k, report);
      }
      control.drain();
      outcome.iterations[static_cast<std::size_t>(rank)] = k;
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return outcome;
}

TEST(RunControl, MergesReportsInIterationOrder) {
  for (const std::int64_t lead : {1, 2, 4}) {
    const Outcome outcome = walk(3, lead, 5, nullptr, [](int, std::int64_t) {});
    EXPECT_THAT(outcome.iterations, testing::Each(5));
    EXPECT_THAT(outcome.reported, testing::ElementsAre(0, 1, 2, 3, 4));
    EXPECT_THAT(outcome.sums, testing::Each(1.0 + 2.0 + 3.0));
  }
}

TEST(RunControl, AllRanksStopAtTheSameIteration) {
  for (const std::int64_t lead : {1, 3}) {
    std::atomic<bool> stop{false};
    const Outcome outcome = walk(3, lead, 100, &stop, [&](int rank, std::int64_t k) {
      if (rank == 1 && k == 4) {
        stop = true;
      }
    });
    EXPECT_THAT(outcome.iterations, testing::Each(outcome.iterations[0]));
    EXPECT_GE(outcome.iterations[0], 5);
    EXPECT_LE(outcome.iterations[0], 5 + 2 * lead);
    EXPECT_EQ(std::ssize(outcome.reported), outcome.iterations[0]);
  }
}

TEST(RunControl, NobodyRunsFurtherAheadThanTheLead) {
  std::atomic<std::int64_t> of_rank_0{0};
  std::atomic<std::int64_t> furthest{0};
  walk(2, 3, 20, nullptr, [&](int rank, std::int64_t k) {
    if (rank == 0) {
      of_rank_0 = k;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else {
      furthest = std::max(furthest.load(), k - of_rank_0.load());
    }
  });
  EXPECT_LE(furthest.load(), 3);
}

TEST(RunControl, TheLeadFollowsFromThePlan) {
  CopyJob options;
  const auto lead = [&] {
    return control_lead(compile_copy_job(options, fresh_directory("lead")));
  };
  EXPECT_EQ(lead(), 1);  // in step
  options.tau = 1;
  EXPECT_EQ(lead(), 2);
  options.shifts = {{"i_ref", 1}, {"t_pi", 1}};
  EXPECT_EQ(lead(), 3);
  options.algorithm = Algorithm::kPpo;
  options.shifts = {{"i_ref", 1}, {"i_V", 1}, {"t_V", 1}, {"t_pi", 1}};
  EXPECT_EQ(lead(), 4);
}

}  // namespace
}  // namespace rpeg
