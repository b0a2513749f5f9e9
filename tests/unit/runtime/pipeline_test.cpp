#include "runtime/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "runtime/batches.h"

namespace rpeg {
namespace {

using Steps = std::vector<PipelineStep>;

TEST(Pipeline, OneStageAlternates) {
  EXPECT_EQ(one_forward_one_backward(0, 1, 2),
            (Steps{{false, 0}, {true, 0}, {false, 1}, {true, 1}}));
}

TEST(Pipeline, FirstOfTwoStagesRunsOneAhead) {
  EXPECT_EQ(one_forward_one_backward(0, 2, 3),
            (Steps{{false, 0}, {false, 1}, {true, 0}, {false, 2}, {true, 1}, {true, 2}}));
  EXPECT_EQ(one_forward_one_backward(1, 2, 1), (Steps{{false, 0}, {true, 0}}));
}

TEST(Pipeline, NothingToDoWithoutMicroBatches) {
  EXPECT_TRUE(one_forward_one_backward(0, 4, 0).empty());
}

/// What one stage has done, and the messages on their way to it.
struct SymbolicStage {
  Steps steps;
  std::size_t next = 0;
  std::deque<std::int64_t> hidden;    ///< from the stage before
  std::deque<std::int64_t> d_hidden;  ///< from the stage after
  std::int64_t in_flight = 0;
  std::int64_t most_in_flight = 0;
};

/// Takes the message that a step waits for; false when it is not there yet.
bool take(std::deque<std::int64_t>& queue, std::int64_t expected) {
  if (queue.empty()) {
    return false;
  }
  EXPECT_EQ(queue.front(), expected) << "messages of one pair arrive in the order they were sent";
  queue.pop_front();
  return true;
}

/// Runs a stage until it waits; true when it did anything.
bool advance(std::vector<SymbolicStage>& stages, std::size_t s) {
  SymbolicStage& stage = stages[s];
  const std::size_t before = stage.next;
  for (; stage.next < stage.steps.size(); ++stage.next) {
    const PipelineStep step = stage.steps[stage.next];
    if (!step.is_backward) {
      if (s > 0 && !take(stage.hidden, step.micro_batch)) {
        break;
      }
      stage.most_in_flight = std::max(stage.most_in_flight, ++stage.in_flight);
      if (s + 1 < stages.size()) {
        stages[s + 1].hidden.push_back(step.micro_batch);
      }
      continue;
    }
    if (s + 1 < stages.size() && !take(stage.d_hidden, step.micro_batch)) {
      break;
    }
    --stage.in_flight;
    if (s > 0) {
      stages[s - 1].d_hidden.push_back(step.micro_batch);
    }
  }
  return stage.next != before;
}

TEST(Pipeline, EveryScheduleEndsWithinItsActivations) {
  for (int pp = 1; pp <= 8; ++pp) {
    for (std::int64_t m = 1; m <= 16; ++m) {
      SCOPED_TRACE("pp " + std::to_string(pp) + ", micro-batches " + std::to_string(m));
      std::vector<SymbolicStage> stages(static_cast<std::size_t>(pp));
      for (int s = 0; s < pp; ++s) {
        stages[static_cast<std::size_t>(s)].steps = one_forward_one_backward(s, pp, m);
      }
      for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t s = 0; s < stages.size(); ++s) {
          moved = advance(stages, s) || moved;
        }
      }
      for (int s = 0; s < pp; ++s) {
        const SymbolicStage& stage = stages[static_cast<std::size_t>(s)];
        EXPECT_EQ(stage.next, static_cast<std::size_t>(2 * m)) << "stage " << s << " is stuck";
        EXPECT_EQ(stage.steps.size(), static_cast<std::size_t>(2 * m));
        EXPECT_EQ(stage.in_flight, 0);
        EXPECT_EQ(stage.most_in_flight, std::min<std::int64_t>(m, pp - s));
        EXPECT_EQ(most_in_flight(s, pp, m), stage.most_in_flight);
      }
    }
  }
}

TEST(BalanceUnits, LongestFirstToTheEmptiest) {
  // 9 → 0, 7 → 1, 5 → 1 (7 + 5 = 12), 4 → 0 (9 + 4 = 13), 2 → 1 (14)
  const std::vector<std::int64_t> tokens{4, 9, 2, 7, 5};
  EXPECT_EQ(balance_units(tokens, 2), (std::vector<std::vector<std::size_t>>{{0, 1}, {2, 3, 4}}));
}

TEST(BalanceUnits, NoPieceIsEmpty) {
  const std::vector<std::int64_t> tokens{100, 1, 1, 1};
  EXPECT_EQ(balance_units(tokens, 4).size(), 4U);
  for (const auto& piece : balance_units(tokens, 4)) {
    EXPECT_EQ(piece.size(), 1U);
  }
  EXPECT_EQ(balance_units(tokens, 9).size(), 4U);
  EXPECT_TRUE(balance_units({}, 3).empty());
}

}  // namespace
}  // namespace rpeg
