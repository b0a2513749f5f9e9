// The parts of the runtime that need no model: messages, metrics, curve, rollouts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "rpeg/base/error.h"
#include "rpeg/runtime/run.h"
#include "runtime/batches.h"
#include "runtime/metrics.h"
#include "runtime/replay.h"
#include "runtime/store.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

IterationData two_sequences() {
  IterationData data;
  data.sequences[4].rollout = Rollout{{7, 8}, {-0.5F, -0.25F}, true};
  data.sequences[4].score = 0.75;
  data.sequences[4].values = {{1.0F, 2.0F}};
  data.sequences[9].rollout = Rollout{{1}, {-3.0F}, false};
  data.sequences[9].score = 0.5;
  data.sequences[9].values = {{-1.0F}};
  return data;
}

const std::vector<std::int64_t> kBoth = {4, 9};

TEST(Store, PayloadsReadBackEqual) {
  const IterationData sent = two_sequences();
  IterationData received;
  for (const Payload payload : {Payload::kRollout, Payload::kScore, Payload::kValues}) {
    EXPECT_EQ(decode_payload(encode_payload(sent, payload, kBoth), payload, received), kBoth);
  }
  for (const std::int64_t s : {4, 9}) {
    EXPECT_EQ(rollout_of(received, s).tokens, rollout_of(sent, s).tokens);
    EXPECT_EQ(rollout_of(received, s).logprobs, rollout_of(sent, s).logprobs);
    EXPECT_EQ(rollout_of(received, s).stopped, rollout_of(sent, s).stopped);
    EXPECT_EQ(score_of(received, s), score_of(sent, s));
    EXPECT_EQ(received.sequences[s].values, sent.sequences.at(s).values);
  }
  // Index, length and flags of two sequences, and a token and a float for each of 3 tokens.
  EXPECT_EQ(encode_payload(sent, Payload::kRollout, kBoth).size(), 2 * 12 + 3 * 8U);
}

TEST(Store, MissingDataIsAnInternalError) {
  const IterationData data = two_sequences();
  EXPECT_THROW(rollout_of(data, 5), Error);
  EXPECT_THROW(numbers_of(data, 4, Payload::kRefLogprobs), Error);
}

TEST(Store, MessagesOfTheWrongLengthAreRefused) {
  IterationData data = two_sequences();
  Bytes message = encode_payload(data, Payload::kValues, kBoth);
  message.resize(message.size() - 1);
  EXPECT_THROW(decode_payload(message, Payload::kValues, data), Error);
  message.resize(message.size() + 2);
  EXPECT_THROW(decode_payload(message, Payload::kValues, data), Error);
}

TEST(Store, GivenResponsesNeedNoLogProbabilities) {
  IterationData data;
  data.sequences[2].rollout = Rollout{{5, 6, 7}, {}, true};
  IterationData received;
  const std::vector<std::int64_t> sequences = {2};
  decode_payload(encode_payload(data, Payload::kRollout, sequences), Payload::kRollout, received);
  EXPECT_EQ(rollout_of(received, 2).tokens, rollout_of(data, 2).tokens);
  EXPECT_TRUE(rollout_of(received, 2).logprobs.empty());
  EXPECT_TRUE(rollout_of(received, 2).stopped);
}

TEST(Store, SlotsNameSequences) {
  IterationData data;
  data.slots = {{{1, 0}, 7}, {{1, 1}, 3}, {{2, 0}, 5}};
  Instruction instruction;
  instruction.slots = {{0, 2}};
  EXPECT_THAT(sequences_of(data, instruction, 1), testing::ElementsAre(7, 3));
  instruction.sequences = {{0, 4}};
  EXPECT_THAT(sequences_of(data, instruction, 1), testing::ElementsAre(3));
  EXPECT_THROW(sequences_of(data, instruction, 2), Error);  // slot 1 has not arrived
  instruction.slots = {};
  EXPECT_THAT(sequences_of(data, instruction, 1), testing::ElementsAre(0, 1, 2, 3));
}

TEST(Batches, AnchorsPointAtTokenAndPredecessor) {
  // Prompt of 2 and response of 3, then prompt of 1 and response of 1: positions 0-4, 5-6.
  PackedSequences packed;
  packed.batch.tokens.resize(7);
  packed.first = {2, 6};
  packed.starts = {0, 3, 4};
  const std::vector<float> per_token = {0, 1, 2, 3, 4, 5, 6};
  EXPECT_THAT(gather_response(packed, per_token, Anchor::kToken),
              testing::ElementsAre(2.0, 3.0, 4.0, 6.0));
  EXPECT_THAT(gather_response(packed, per_token, Anchor::kPredecessor),
              testing::ElementsAre(1.0, 2.0, 3.0, 5.0));
  const std::vector<double> numbers = {10, 20, 30, 40};
  EXPECT_THAT(scatter_response(packed, numbers, Anchor::kToken),
              testing::ElementsAre(0, 0, 10, 20, 30, 0, 40));
  EXPECT_THAT(scatter_response(packed, numbers, Anchor::kPredecessor),
              testing::ElementsAre(0, 10, 20, 30, 0, 40, 0));
}

TEST(Metrics, ReportsSurviveTheJourneyAndAddUp) {
  Report a;
  a[Sum::kSequences] = 3.0;
  a.mismatch_max = 0.25;
  a.task_s = {1.0, 5.0};
  a.iteration_s = 6.0;
  Report b;
  b[Sum::kSequences] = 2.0;
  b.mismatch_max = 0.125;
  b.task_s = {2.0, 4.0};
  b.iteration_s = 7.0;
  b.stop = true;
  b.rollouts = "line\n";
  Report total;
  merge_report(total, decode_report(encode_report(a)));
  merge_report(total, decode_report(encode_report(b)));
  EXPECT_EQ(total[Sum::kSequences], 5.0);
  EXPECT_EQ(total.mismatch_max, 0.25);
  EXPECT_THAT(total.task_s, testing::ElementsAre(2.0, 5.0));
  EXPECT_EQ(total.iteration_s, 7.0);
  EXPECT_TRUE(total.stop);
  EXPECT_EQ(total.rollouts, "line\n");
}

TEST(Metrics, AveragesOverSequencesAndUpdates) {
  Job job;
  job.inputs.policy.algorithm = Algorithm::kGrpo;
  job.config.train.minibatches = 2;
  job.config.train.epochs = 2;
  job.config.train.iterations = 10;
  job.config.train.learning_rate_actor = 0.5;
  Report total;
  total[Sum::kSequences] = 4.0;
  total[Sum::kReward] = 2.0;         // 1 1 0 0
  total[Sum::kRewardSquared] = 2.0;  // mean ½, variance ½ − ¼
  total[Sum::kResponseTokens] = 12.0;
  total[Sum::kPromptTokens] = 8.0;
  total[Sum::kPolicyLoss] = 8.0;  // of 4 updates
  total.iteration_s = 0.5;
  const IterationMetrics metrics = metrics_of(job, 3, total);
  EXPECT_DOUBLE_EQ(metrics.reward_mean, 0.5);
  EXPECT_DOUBLE_EQ(metrics.reward_std, 0.5);
  EXPECT_DOUBLE_EQ(metrics.response_tokens_mean, 3.0);
  EXPECT_DOUBLE_EQ(metrics.policy_loss, 2.0);
  EXPECT_DOUBLE_EQ(metrics.tokens_per_s, 40.0);
  EXPECT_DOUBLE_EQ(metrics.learning_rate, 0.5);
  EXPECT_TRUE(std::isnan(metrics.value_loss));
  EXPECT_TRUE(std::isnan(metrics.kl_reference));
  EXPECT_THAT(metrics_line(metrics), testing::HasSubstr("\"kl_reference\":null"));
}

TEST(Rollouts, LinesReadBackToTheSameBits) {
  const auto path = test::test_directory() / "rollouts.jsonl";
  RolloutRecord record;
  record.iteration = 2;
  record.prompt = 5;
  record.sample = 1;
  record.dataset_index = 77;
  record.version = 2;
  record.reward = 1.0 / 3.0;
  record.rollout = {{4, 5}, {-1.0F / 3.0F, -1e-30F}, true};
  record.text = "broken \xff text";  // not UTF-8
  std::ofstream(path) << rollout_line(record);
  const RolloutTable table = load_rollouts(path);
  const RolloutRecord& read = table.at({2, 5, 1});
  EXPECT_EQ(read.rollout.tokens, record.rollout.tokens);
  EXPECT_EQ(read.rollout.logprobs, record.rollout.logprobs);
  EXPECT_EQ(read.reward, record.reward);
  EXPECT_EQ(read.dataset_index, 77);
  EXPECT_TRUE(read.rollout.stopped);
}

TEST(Rollouts, NamesTheBrokenLine) {
  const auto path = test::test_directory() / "broken.jsonl";
  std::ofstream(path) << "{\"iteration\": 0}\n";
  try {
    load_rollouts(path);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.where(), testing::HasSubstr("broken.jsonl:1"));
  }
}

TEST(RewardCurve, DrawsOneBarAColumn) {
  std::vector<IterationMetrics> iterations(4);
  for (std::size_t k = 0; k < 4; ++k) {
    iterations[k].iteration = static_cast<std::int64_t>(k);
    iterations[k].reward_mean = 0.25 * static_cast<double>(k + 1);  // top 1: 2, 4, 6, 8 quarters
  }
  EXPECT_EQ(reward_curve(iterations, 10, 2),
            "  reward\n"
            "   1.000 ┤  ▄█\n"
            "   0.000 ┤▄███\n"
            "         └────\n"
            "          0  3  iteration\n");
}

TEST(RewardCurve, AveragesIterationsIntoColumns) {
  std::vector<IterationMetrics> iterations(4);
  const std::vector<double> rewards = {0.0, 1.0, 1.0, 1.0};  // columns ½ and 1
  for (std::size_t k = 0; k < 4; ++k) {
    iterations[k].iteration = static_cast<std::int64_t>(k);
    iterations[k].reward_mean = rewards[k];
  }
  EXPECT_THAT(reward_curve(iterations, 2, 1), testing::HasSubstr("┤▄█\n"));
  EXPECT_EQ(reward_curve({}, 10, 2), "");
}

}  // namespace
}  // namespace rpeg
