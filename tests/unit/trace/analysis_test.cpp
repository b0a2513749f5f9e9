#include "rpeg/trace/analysis.h"

#include <gtest/gtest.h>

namespace rpeg {
namespace {

TraceEvent event(int rank,
                 std::int64_t iteration,
                 const std::string& kind,
                 const std::string& task,
                 double start_s,
                 double end_s,
                 double waited_s = 0.0) {
  TraceEvent result;
  result.iteration = iteration;
  result.rank = rank;
  result.kind = kind;
  result.vertex = task;
  result.start_s = start_s;
  result.end_s = end_s;
  result.waited_s = waited_s;
  return result;
}

/// Two ranks, two iterations of 10 s: rank 0 generates, rank 1 waits for it and trains.
Trace two_ranks() {
  Trace trace;
  trace.ranks.resize(2);
  trace.ranks[1].rank = 1;
  for (std::int64_t k = 0; k < 2; ++k) {
    const double t = 10.0 * static_cast<double>(k);
    trace.ranks[0].events.push_back(event(0, k, "generate", "g_pi", t, t + 4 + t / 10));
    trace.ranks[0].events.push_back(event(0, k, "send", "g_pi", t + 5, t + 5.5));
    trace.ranks[0].events.push_back(
        event(0, k, "receive_weights", "t_pi->g_pi", t + 9.5, t + 10, 4.0));
    trace.ranks[1].events.push_back(event(1, k, "receive", "g_pi", t + 5.5, t + 6, 5.5));
    trace.ranks[1].events.push_back(event(1, k, "train", "t_pi", t + 6, t + 9));
    trace.ranks[1].events.push_back(event(1, k, "send_weights", "t_pi->g_pi", t + 9, t + 9.25));
    trace.ranks[0].rollouts.push_back({.iteration = k,
                                       .rank = 0,
                                       .instruction = 0,
                                       .sequences = {{0, 5, 7}, {1, 5, 9}},
                                       .verifier_s = 0.5});
  }
  return trace;
}

TEST(AnalyseTrace, TakesTheSlowestRankOfEachTask) {
  const TraceAnalysis analysis = analyse_trace(two_ranks());
  ASSERT_EQ(analysis.tasks.size(), 3U);
  EXPECT_EQ(analysis.tasks[0].task, "g_pi");
  EXPECT_EQ(analysis.tasks[0].seconds, (std::vector<double>{4.0, 5.0}));
  EXPECT_EQ(analysis.tasks[1].task, "t_pi");
  EXPECT_EQ(analysis.tasks[1].seconds, (std::vector<double>{3.0, 3.0}));
  EXPECT_EQ(analysis.tasks[2].task, "t_pi->g_pi");
  EXPECT_EQ(analysis.tasks[2].seconds, (std::vector<double>{0.5, 0.5}));  // of 0.25 and 0.5
  EXPECT_EQ(analysis.iteration_s, (std::vector<double>{10.0, 10.0}));
}

TEST(AnalyseTrace, SharesOutTheTimeAfterTheFirstIteration) {
  const TraceAnalysis analysis = analyse_trace(two_ranks());
  ASSERT_EQ(analysis.ranks.size(), 2U);
  EXPECT_NEAR(analysis.ranks[0].busy, 0.5, 1e-12);     // 5 of 10 s
  EXPECT_NEAR(analysis.ranks[0].waiting, 0.4, 1e-12);  // for weights
  EXPECT_NEAR(analysis.ranks[0].moving, 0.1, 1e-12);   // 0.5 + 0.5
  EXPECT_NEAR(analysis.ranks[1].busy, 0.3, 1e-12);
  EXPECT_NEAR(analysis.ranks[1].waiting, 0.55, 1e-12);
  EXPECT_NEAR(analysis.ranks[1].moving, 0.075, 1e-12);  // 0.5 + 0.25
}

TEST(AnalyseTrace, CollectsLengthsAndTheVerifier) {
  const TraceAnalysis analysis = analyse_trace(two_ranks());
  EXPECT_EQ(analysis.response_tokens, (std::vector<std::int64_t>{7, 9, 7, 9}));
  EXPECT_DOUBLE_EQ(analysis.verifier_s, 0.25);  // 2 x 0.5 s over 4 responses
}

TEST(AnalyseTrace, OfNothingIsEmpty) {
  EXPECT_TRUE(analyse_trace({}).tasks.empty());
  EXPECT_TRUE(analyse_trace({}).iteration_s.empty());
}

}  // namespace
}  // namespace rpeg
