#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "rpeg/base/error.h"
#include "rpeg/base/rng.h"
#include "rpeg/job/tensors.h"
#include "support/tiny_job.h"

namespace rpeg {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// "receive rollout of g_pi [0,8) from 1" for every instruction of a rank.
std::vector<std::string> program_text(const Job& job, std::size_t rank) {
  std::vector<std::string> lines;
  for (const Instruction& instruction : job.ranks[rank].program) {
    std::string line = to_string(instruction.kind);
    const bool is_data =
        instruction.kind == InstructionKind::kSend || instruction.kind == InstructionKind::kReceive;
    line += is_data ? fmt::format(" {}", to_string(instruction.payload)) : "";
    line += " " + job.graph.vertices[static_cast<std::size_t>(instruction.vertex)].name;
    for (const SequenceRange& range : instruction.sequences) {
      line += fmt::format(" {}-{}", range.first, range.last);
    }
    for (const SequenceRange& range : instruction.slots) {
      line += fmt::format(" slot {}-{}", range.first, range.last);
    }
    line += instruction.shift > 0 ? fmt::format(" shift {}", instruction.shift) : "";
    line += instruction.peer >= 0 ? fmt::format(" rank {}", instruction.peer) : "";
    lines.push_back(line);
  }
  return lines;
}

std::string failure(const Job& job) {
  try {
    check_programs(job, 3);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "";
}

PlanFile two_rank_plan(Algorithm algorithm) {
  return tiny_plan(
      tiny_inputs(algorithm),
      {{"g_pi", "r0 n[0-0] g[0-0]"}, {"i_ref", "r0 n[0-0] g[0-0]"}, {"t_pi", "r0 n[0-0] g[1-1]"}});
}

TEST(Programs, OfDisjointGenerationAndTrainingReadAsExpected) {
  const Job job = tiny_job(two_rank_plan(Algorithm::kGrpo));
  ASSERT_EQ(job.ranks.size(), 2U);
  EXPECT_THAT(program_text(job, 0),
              ElementsAre("receive_weights t_pi rank 1",
                          "generate g_pi 0-16",
                          "send rollout g_pi 0-16 rank 1",
                          "send score g_pi 0-16 rank 1",
                          "infer i_ref 0-16",
                          "send ref_logprobs i_ref 0-16 rank 1"));
  EXPECT_THAT(program_text(job, 1),
              ElementsAre("receive rollout g_pi 0-16 rank 0",
                          "receive score g_pi 0-16 rank 0",
                          "receive ref_logprobs i_ref 0-16 rank 0",
                          "train t_pi 0-16",
                          "send_weights t_pi rank 0"));
  EXPECT_EQ(failure(job), "");
}

TEST(Programs, OfOneRankHaveNoMessages) {
  const Job job = tiny_job(tiny_plan(tiny_inputs(Algorithm::kPpo), {}));
  EXPECT_THAT(program_text(job, 0),
              ElementsAre("generate g_pi 0-16",
                          "infer i_V 0-16",
                          "infer i_ref 0-16",
                          "train t_V 0-16",
                          "train t_pi 0-16"));
  EXPECT_TRUE(job.transfers.empty());
}

TEST(Programs, CoLocatedReplicasExchangeOnlyWhatTheyDoNotOwn) {
  // Two replicas of everything on ranks 0 and 1: nothing crosses.
  std::map<std::string, std::string> both{
      {"g_pi", "r0 n[0-0] g[0-1]"}, {"i_ref", "r0 n[0-0] g[0-1]"}, {"t_pi", "r0 n[0-0] g[0-1]"}};
  EXPECT_THAT(program_text(tiny_job(tiny_plan(tiny_inputs(Algorithm::kGrpo), both)), 0),
              ElementsAre("generate g_pi 0-8", "infer i_ref 0-8", "train t_pi 0-8"));
  // With two mini-batches rank 0 trains [0, 4) and [8, 12), and lacks the second part.
  WorkloadConfig inputs = tiny_inputs(Algorithm::kGrpo);
  inputs.policy.minibatches = 2;
  EXPECT_THAT(program_text(tiny_job(tiny_plan(inputs, both)), 0),
              ElementsAre("generate g_pi 0-8",
                          "send rollout g_pi 4-8 rank 1",
                          "send score g_pi 4-8 rank 1",
                          "infer i_ref 0-8",
                          "send ref_logprobs i_ref 4-8 rank 1",
                          "receive rollout g_pi 8-12 rank 1",
                          "receive score g_pi 8-12 rank 1",
                          "receive ref_logprobs i_ref 8-12 rank 1",
                          "train t_pi 0-4 8-12"));
}

TEST(Programs, ADataItemReachesARankOnce) {
  // i_V and t_V on rank 1 read the same rollouts.
  const Job job = tiny_job(tiny_plan(tiny_inputs(Algorithm::kPpo),
                                     {{"i_V", "r0 n[0-0] g[1-1]"}, {"t_V", "r0 n[0-0] g[1-1]"}}));
  EXPECT_THAT(program_text(job, 1),
              ElementsAre("receive rollout g_pi 0-16 rank 0",
                          "infer i_V 0-16",
                          "send values i_V 0-16 rank 0",
                          "receive score g_pi 0-16 rank 0",
                          "receive ref_logprobs i_ref 0-16 rank 0",
                          "train t_V 0-16"));
}

TEST(Programs, TasksThatLagBehindRunLastInTheirIteration) {
  PlanFile plan = tiny_plan(tiny_inputs(Algorithm::kPpo), {});
  for (ScheduleEntry& entry : plan.schedule) {
    // t_V of the previous iteration between g_pi and the others.
    entry.order = entry.id == "t_V" ? 1 : entry.order * 10;
    entry.shift = entry.id == "t_V" ? 1 : 0;
  }
  EXPECT_EQ(program_text(tiny_job(plan), 0).back(), "train t_V 0-16");
  plan.schedule[0].order = 1000;  // g_pi after its consumers
  EXPECT_THROW((void)tiny_job(plan), Error);
}

TEST(Transfers, DealTensorsByBytesOverReplicas) {
  const Job job = tiny_job(tiny_plan(tiny_inputs(Algorithm::kGrpo),
                                     {{"g_pi", "r0 n[0-0] g[0-1]"}, {"t_pi", "r0 n[0-0] g[1-3]"}}));
  // Rank 1 trains and generates; only rank 0 needs weights, from three replicas.
  ASSERT_EQ(job.transfers.size(), 1U);
  const WeightTransfer& transfer = job.transfers[0];
  EXPECT_EQ(transfer.tensors.front().name, "model.embed_tokens.weight");
  ASSERT_EQ(transfer.messages.size(), 3U);
  std::vector<int> copies(transfer.tensors.size(), 0);
  std::int64_t total = 0;
  std::int64_t most = 0;
  for (const WeightMessage& message : transfer.messages) {
    EXPECT_EQ(message.to, 0);
    total += message.bytes;
    most = std::max(most, message.bytes);
    for (const WeightSlice& slice : message.slices) {
      ++copies[static_cast<std::size_t>(slice.tensor)];
      EXPECT_EQ(slice.begin, 0);
    }
  }
  EXPECT_THAT(copies, testing::Each(1));
  // By hand: embedding and head 8*8, layers (2 norms 8, q 8*8, k and v 4*8, o 8*8, FFN 3*12*8),
  // final norm 8.
  const std::int64_t elements = 2 * 64 + 2 * (16 + 64 + 64 + 64 + 288) + 8;
  EXPECT_EQ(total, 4 * elements);
  EXPECT_LE(most, 4 * (elements / 3 + 96)) << "within a largest tensor of an even share";
}

TEST(Transfers, ACriticSendsAScalarHead) {
  const Job job = tiny_job(tiny_plan(tiny_inputs(Algorithm::kPpo), {{"t_V", "r0 n[0-0] g[1-1]"}}));
  ASSERT_EQ(job.transfers.size(), 1U);
  EXPECT_EQ(job.transfers[0].tensors.back().name, "score.weight");
}

TEST(Tensors, TiedModelsHaveNoHead) {
  ModelSpec spec = tiny_spec();
  EXPECT_EQ(model_tensors(spec, false).size(), 1U + 2 * 9 + 1 + 1);
  spec.tied_embeddings = true;
  EXPECT_EQ(model_tensors(spec, false).back().name, "model.norm.weight");
  EXPECT_EQ(model_tensors(spec, true).back().shape, (std::vector<std::int64_t>{1, 8}));
}

/// A random block of the cluster of 2 nodes with 4 GPUs.
std::string random_block(Rng& rng) {
  const std::int64_t node = rng.below(2);
  const std::int64_t last_node = node + rng.below(2 - node);
  const std::int64_t gpu = rng.below(4);
  const std::int64_t last_gpu = gpu + rng.below(4 - gpu);
  return fmt::format("r0 n[{}-{}] g[{}-{}]", node, last_node, gpu, last_gpu);
}

TEST(Programs, OfRandomPlacementsAreProven) {
  Rng rng(3);
  for (int i = 0; i < 400; ++i) {
    WorkloadConfig inputs = tiny_inputs(rng.below(2) == 0 ? Algorithm::kPpo : Algorithm::kGrpo);
    inputs.policy.minibatches = 1 + rng.below(2);
    inputs.policy.kl_reference = rng.below(4) != 0;
    inputs.policy.recompute_logprobs = rng.below(2) == 0;
    std::map<std::string, std::string> placements;
    std::string text;
    for (const char* vertex : {"g_pi", "i_V", "i_ref", "i_pi", "t_V", "t_pi"}) {
      placements[vertex] = random_block(rng);
      text += fmt::format("{} {}; ", vertex, placements[vertex]);
    }
    EXPECT_EQ(failure(tiny_job(tiny_plan(inputs, placements))), "") << text;
  }
}

/// A PPO job on ranks 0 to 3 with both trainings on ranks 0 and 1.
Job ppo_job() {
  return tiny_job(tiny_plan(tiny_inputs(Algorithm::kPpo),
                            {{"g_pi", "r0 n[0-0] g[2-3]"},
                             {"i_V", "r0 n[0-0] g[0-1]"},
                             {"i_ref", "r0 n[0-0] g[2-2]"},
                             {"t_V", "r0 n[0-0] g[0-1]"},
                             {"t_pi", "r0 n[0-0] g[0-1]"}}));
}

using Program = std::vector<Instruction>;

Program::iterator find(Program& program, InstructionKind kind) {
  const auto at = std::find_if(
      program.begin(), program.end(), [&](const Instruction& i) { return i.kind == kind; });
  EXPECT_NE(at, program.end());
  return at;
}

TEST(CheckPrograms, AcceptsTheCompiledJob) { EXPECT_EQ(failure(ppo_job()), ""); }

TEST(CheckPrograms, NamesTheReceiverOfAMissingSend) {
  Job job = ppo_job();
  Program& program = job.ranks[2].program;
  program.erase(find(program, InstructionKind::kSend));
  EXPECT_THAT(failure(job),
              AllOf(HasSubstr("deadlock"),
                    HasSubstr("rank 0, instruction 0 (receive rollout of g_pi from rank 2"),
                    HasSubstr("waits for rank 2")));
}

TEST(CheckPrograms, PrintsTheCycleOfCrossedCollectives) {
  Job job = ppo_job();
  Program& program = job.ranks[0].program;
  const auto first = find(program, InstructionKind::kTrain);
  const auto second = std::find_if(first + 1, program.end(), [](const Instruction& i) {
    return i.kind == InstructionKind::kTrain;
  });
  // All inputs first, then the trainings in the wrong order.
  std::rotate(first, first + 1, second);
  std::swap(*(second - 1), *second);
  EXPECT_THAT(failure(job),
              AllOf(HasSubstr("(train t_pi) of iteration 0 waits for rank 1"),
                    HasSubstr("(train t_V) of iteration 0 waits for rank 0")));
}

TEST(CheckPrograms, PrintsTheCycleOfASwappedOrder) {
  // Rank 2 waits for the new weights before it sends what rank 0 needs to make them.
  Job job = ppo_job();
  Program& program = job.ranks[2].program;
  const auto receive = find(program, InstructionKind::kReceiveWeights);
  std::rotate(find(program, InstructionKind::kSend), receive, receive + 1);
  EXPECT_THAT(failure(job),
              AllOf(HasSubstr("deadlock"),
                    HasSubstr("(receive_weights of t_pi from rank"),
                    HasSubstr("(receive rollout of g_pi from rank 2")));
}

TEST(CheckPrograms, RejectsAWrongVersion) {
  Job job = ppo_job();
  // The message of one transfer is dropped on both sides.
  Program& to = job.ranks[2].program;
  const auto receive = find(to, InstructionKind::kReceiveWeights);
  Program& from = job.ranks[static_cast<std::size_t>(receive->peer)].program;
  from.erase(std::find_if(from.begin(), from.end(), [&](const Instruction& i) {
    return i.kind == InstructionKind::kSendWeights && i.message == receive->message;
  }));
  to.erase(receive);
  EXPECT_THAT(failure(job),
              AllOf(HasSubstr("rank 2, instruction 0 (generate g_pi) of iteration 1"),
                    HasSubstr("needs version 1 of the actor's weights"),
                    HasSubstr("has version 0")));
}

TEST(CheckPrograms, RejectsACollectiveThatOneMemberSkips) {
  Job job = ppo_job();
  Program& program = job.ranks[1].program;
  program.erase(find(program, InstructionKind::kTrain));
  EXPECT_THAT(failure(job), HasSubstr("rank 1 computes t_V 0 times"));
}

TEST(CheckPrograms, RejectsAnotherTag) {
  Job job = ppo_job();
  find(job.ranks[0].program, InstructionKind::kReceive)->tag += 1000;
  EXPECT_THAT(failure(job), AllOf(HasSubstr("deadlock"), HasSubstr("tag 1000")));
}

TEST(CheckPrograms, RejectsOtherSequences) {
  Job job = ppo_job();
  find(job.ranks[0].program, InstructionKind::kReceive)->sequences[0].last -= 1;
  EXPECT_THAT(failure(job), HasSubstr("gets another message"));
  job = ppo_job();
  Program& program = job.ranks[2].program;
  std::rotate(program.begin(), program.begin() + 1, program.begin() + 2);
  EXPECT_THAT(failure(job), HasSubstr("sends what the rank has not computed"));
}

TEST(CheckPrograms, RejectsAMissingInput) {
  Job job = ppo_job();
  Program& program = job.ranks[0].program;
  const auto train = find(program, InstructionKind::kTrain);
  std::rotate(train - 1, train, train + 1);  // before its last input
  EXPECT_THAT(failure(job), AllOf(HasSubstr("(train t_V)"), HasSubstr("its input is not there")));
}

TEST(CheckPrograms, RejectsAMessageThatNobodyReceives) {
  Job job = ppo_job();
  Program& program = job.ranks[2].program;
  const auto send = find(program, InstructionKind::kSend);
  Instruction extra = *send;
  extra.tag = 999;
  program.insert(send, extra);
  EXPECT_THAT(failure(job), HasSubstr("runs ahead of its receiver"));
  try {
    check_programs(job, 1);
    FAIL() << "a message is left over";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("nobody receives this message"));
  }
}

}  // namespace
}  // namespace rpeg
