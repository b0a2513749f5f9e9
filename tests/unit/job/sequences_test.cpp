#include <gtest/gtest.h>

#include <set>

#include "job/layout.h"
#include "rpeg/base/rng.h"

namespace rpeg {
namespace {

using Ranges = std::vector<SequenceRange>;

std::set<std::int64_t> members(const Ranges& ranges) {
  std::set<std::int64_t> all;
  for (const SequenceRange& range : ranges) {
    for (std::int64_t s = range.first; s < range.last; ++s) {
      all.insert(s);
    }
  }
  return all;
}

Ranges random_ranges(Rng& rng) {
  Ranges ranges;
  std::int64_t at = rng.below(4);
  for (std::int64_t i = rng.below(5); i > 0; --i) {
    const std::int64_t last = at + 1 + rng.below(4);
    ranges.push_back({at, last});
    at = last + rng.below(3);
  }
  return ranges;
}

TEST(Sequences, GenerationOwnsOneRangeWhateverTheMinibatches) {
  // 10 over 4 replicas: 3, 3, 2, 2.
  EXPECT_EQ(owned_sequences(Op::kGenerate, 10, 5, 4, 0), (Ranges{{0, 3}}));
  EXPECT_EQ(owned_sequences(Op::kGenerate, 10, 5, 4, 2), (Ranges{{6, 8}}));
  EXPECT_EQ(owned_sequences(Op::kInferValue, 10, 5, 4, 3), (Ranges{{8, 10}}));
}

TEST(Sequences, TrainingOwnsAPartOfEveryMinibatch) {
  // Mini-batches [0, 4), [4, 7), [7, 10), each over 2 replicas, the first gets one more.
  EXPECT_EQ(minibatch_sequences(10, 3, 0), (SequenceRange{0, 4}));
  EXPECT_EQ(minibatch_sequences(10, 3, 1), (SequenceRange{4, 7}));
  EXPECT_EQ(owned_sequences(Op::kTrain, 10, 3, 2, 0), (Ranges{{0, 2}, {4, 6}, {7, 9}}));
  EXPECT_EQ(owned_sequences(Op::kTrain, 10, 3, 2, 1), (Ranges{{2, 4}, {6, 7}, {9, 10}}));
}

TEST(Sequences, ReplicasPartitionEveryMinibatch) {
  for (const int dp : {1, 2, 3, 5}) {
    for (const std::int64_t minibatches : {1, 2, 4}) {
      std::set<std::int64_t> seen;
      for (int replica = 0; replica < dp; ++replica) {
        const Ranges owned = owned_sequences(Op::kTrain, 23, minibatches, dp, replica);
        EXPECT_LE(owned.size(), static_cast<std::size_t>(minibatches));
        for (const std::int64_t s : members(owned)) {
          EXPECT_TRUE(seen.insert(s).second) << s << " is owned twice";
        }
      }
      EXPECT_EQ(seen.size(), 23U);
    }
  }
}

TEST(Sequences, SetOperationsAgreeWithSets) {
  Rng rng(11);
  for (int i = 0; i < 2000; ++i) {
    const Ranges a = random_ranges(rng);
    const Ranges b = random_ranges(rng);
    const auto in_a = members(a);
    const auto in_b = members(b);
    std::set<std::int64_t> both;
    std::set<std::int64_t> rest;
    std::set<std::int64_t> either = in_b;
    for (const std::int64_t s : in_a) {
      (in_b.contains(s) ? both : rest).insert(s);
      either.insert(s);
    }
    EXPECT_EQ(members(intersect(a, b)), both);
    EXPECT_EQ(members(subtract(a, b)), rest);
    EXPECT_EQ(members(unite(a, b)), either);
    EXPECT_EQ(sequence_count(a), static_cast<std::int64_t>(in_a.size()));
  }
}

TEST(Sequences, UnitsStayTogether) {
  // 5 prompts of 2 sequences over 2 mini-batches (3 and 2 prompts), each over 2 replicas.
  EXPECT_EQ(owned_sequences(Op::kTrain, 10, 2, 2, 0, 2), (Ranges{{0, 4}, {6, 8}}));
  EXPECT_EQ(owned_sequences(Op::kTrain, 10, 2, 2, 1, 2), (Ranges{{4, 6}, {8, 10}}));
  EXPECT_EQ(minibatch_sequences(10, 2, 1, 2), (SequenceRange{6, 10}));
}

TEST(Sequences, StagesEndWithTheirShareOfEveryReplica) {
  WorkloadConfig inputs;
  inputs.workload.batch_size = 10;
  inputs.workload.generation_length = 8;
  inputs.workload.gen_quantiles = {{0.5, 2.0}, {0.75, 4.0}, {1.0, 8.0}};
  // Replicas of 4, 3 and 3: by 0.5 ⌈2⌉, ⌈1.5⌉, ⌈1.5⌉ have ended, by 0.75 ⌈3⌉, ⌈2.25⌉, ⌈2.25⌉.
  const auto slots = [&](std::uint32_t cuts, std::int32_t stage, int replica) {
    return stage_slots(inputs, cuts, stage, 3, replica);
  };
  EXPECT_EQ(slots(3, 1, 0), (SequenceRange{0, 2}));
  EXPECT_EQ(slots(3, 1, 1), (SequenceRange{2, 4}));
  EXPECT_EQ(slots(3, 1, 2), (SequenceRange{4, 6}));
  EXPECT_EQ(slots(3, 2, 0), (SequenceRange{0, 1}));
  EXPECT_EQ(slots(3, 2, 2), (SequenceRange{2, 3}));
  EXPECT_EQ(slots(3, 3, 0), (SequenceRange{0, 1}));
  EXPECT_EQ(slots(3, 3, 1), (SequenceRange{1, 1}));  // all three have ended
  // One cut at 0.75.
  EXPECT_EQ(slots(2, 1, 1), (SequenceRange{3, 6}));
  EXPECT_EQ(slots(2, 2, 0), (SequenceRange{0, 1}));
}

TEST(Sequences, CapacityIsThatOfFullLengthResponses) {
  // A rollout of 4 tokens: index 4, length 4, stopped 4, tokens 16, log-probabilities 16.
  EXPECT_EQ(message_capacity_bytes(Payload::kRollout, 3, 4), 3 * (4 + 4 + 4 + 16 + 16));
  EXPECT_EQ(message_capacity_bytes(Payload::kScore, 3, 4), 3 * (4 + 8));
  EXPECT_EQ(message_capacity_bytes(Payload::kValues, 3, 4), 3 * (4 + 16));
}

}  // namespace
}  // namespace rpeg
