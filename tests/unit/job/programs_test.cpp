#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rpeg/base/error.h"
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

TEST(Programs, RunInTheOrderOfThePeriod) {
  PlanFile plan = tiny_plan(tiny_inputs(Algorithm::kPpo), {});
  for (ScheduleEntry& entry : plan.schedule) {
    // t_V of the previous iteration between g_pi and the others.
    entry.order = entry.id == "t_V" ? 1 : entry.order * 10;
    entry.shift = entry.id == "t_V" ? 1 : 0;
  }
  const Job job = tiny_job(plan);
  EXPECT_THAT(program_text(job, 0),
              ElementsAre("generate g_pi 0-16",
                          "train t_V 0-16 shift 1",
                          "infer i_V 0-16",
                          "infer i_ref 0-16",
                          "train t_pi 0-16"));
  EXPECT_EQ(failure(job), "");
  plan.schedule[0].order = 1000;  // g_pi after its consumers
  try {
    (void)tiny_job(plan);
    FAIL() << "compiled";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("runs i_V (order 10, shift 0) before g_pi (order 1000, shift 0)"),
                      HasSubstr("in the same iteration")));
  }
}

TEST(Programs, OfARankBeginWithItsFirstTask) {
  PlanFile plan = two_rank_plan(Algorithm::kGrpo);
  for (ScheduleEntry& entry : plan.schedule) {
    entry.shift = entry.id == "t_pi" ? 1 : 0;
  }
  // Weights of iteration k - 1 would come too late for iteration k.
  EXPECT_THROW((void)tiny_job(plan), Error);
  plan.plan.structure.tau_actor = 1;
  const Job job = tiny_job(plan);
  EXPECT_EQ(program_text(job, 1).back(), "send_weights t_pi rank 0");  // no shift: its only task
  EXPECT_EQ(failure(job), "");
}

WorkloadConfig cut_inputs() {
  WorkloadConfig inputs = tiny_inputs(Algorithm::kGrpo);
  inputs.workload.gen_quantiles = {{0.5, 2}, {1.0, 4}};
  return inputs;
}

TEST(Programs, OfCutGenerationHandSlotsOn) {
  const Job job = tiny_job(tiny_plan(
      cut_inputs(),
      {{"g_pi", "r0 n[0-0] g[0-1]"}, {"i_ref", "r0 n[0-0] g[2-2]"}, {"t_pi", "r0 n[0-0] g[3-3]"}},
      {.cuts = 1}));
  EXPECT_THAT(program_text(job, 1),
              ElementsAre("receive_weights t_pi rank 3",
                          "generate g_pi.1 8-16 slot 4-8",
                          "send rollout g_pi.1 slot 4-8 rank 2",
                          "send rollout g_pi.1 8-16 slot 4-8 rank 3",
                          "send score g_pi.1 8-16 slot 4-8 rank 3",
                          "generate g_pi.2 8-16 slot 4-8",
                          "send rollout g_pi.2 slot 4-8 rank 2",
                          "send rollout g_pi.2 8-16 slot 4-8 rank 3",
                          "send score g_pi.2 8-16 slot 4-8 rank 3"));
  EXPECT_THAT(program_text(job, 2),
              ElementsAre("receive rollout g_pi.1 slot 0-4 rank 0",
                          "receive rollout g_pi.1 slot 4-8 rank 1",
                          "infer i_ref.1 slot 0-8",
                          "send ref_logprobs i_ref.1 0-16 slot 0-8 rank 3",
                          "receive rollout g_pi.2 slot 0-4 rank 0",
                          "receive rollout g_pi.2 slot 4-8 rank 1",
                          "infer i_ref.2 slot 0-8",
                          "send ref_logprobs i_ref.2 0-16 slot 0-8 rank 3"));
  EXPECT_EQ(failure(job), "");
}

TEST(Programs, OfCutGenerationKeepWhatTheirRankHas) {
  // i_ref and t_pi on ranks 2 and 3: what came for i_ref is not sent again.
  const Job job = tiny_job(tiny_plan(
      cut_inputs(),
      {{"g_pi", "r0 n[0-0] g[0-1]"}, {"i_ref", "r0 n[0-0] g[2-3]"}, {"t_pi", "r0 n[0-0] g[2-3]"}},
      {.cuts = 1}));
  EXPECT_THAT(program_text(job, 2),
              ElementsAre("receive rollout g_pi.1 slot 0-4 rank 0",
                          "infer i_ref.1 slot 0-4",
                          "receive rollout g_pi.2 slot 0-4 rank 0",
                          "infer i_ref.2 slot 0-4",
                          "receive score g_pi.1 0-8 slot 0-4 rank 0",
                          "receive score g_pi.2 0-8 slot 0-4 rank 0",
                          "train t_pi 0-8",
                          "send_weights t_pi rank 0"));  // rank 1 gets its weights from rank 3
  EXPECT_EQ(failure(job), "");
}

TEST(Programs, OfOfflineDpoWorkOnPairsOfTheDataSet) {
  WorkloadConfig inputs = tiny_inputs(Algorithm::kDpo);
  inputs.workload.samples_per_prompt = 1;
  const Job job =
      tiny_job(tiny_plan(inputs, {{"i_ref", "r0 n[0-0] g[0-0]"}, {"t_pi", "r0 n[0-0] g[1-2]"}}));
  // The empty message of iteration k - 2 keeps the reference from running ahead of training.
  EXPECT_THAT(program_text(job, 0),
              ElementsAre("receive rollout t_pi shift 2 rank 1",
                          "infer i_ref 0-16",
                          "send ref_logprobs i_ref 0-8 rank 1",
                          "send ref_logprobs i_ref 8-16 rank 2"));
  EXPECT_THAT(
      program_text(job, 1),
      ElementsAre(
          "receive ref_logprobs i_ref 0-8 rank 0", "train t_pi 0-8", "send rollout t_pi rank 0"));
  EXPECT_EQ(job.ranks[0].program[0].capacity_bytes, 0);
  EXPECT_EQ(failure(job), "");
}

TEST(Programs, OfOnlineDpoKeepThePromptTogether) {
  WorkloadConfig inputs = tiny_inputs(Algorithm::kDpo);
  inputs.policy.dpo_mode = DpoMode::kOnline;
  inputs.workload.samples_per_prompt = 4;
  const Job job = tiny_job(tiny_plan(
      inputs,
      {{"g_pi", "r0 n[0-0] g[0-0]"}, {"i_ref", "r0 n[0-0] g[1-3]"}, {"t_pi", "r0 n[0-0] g[0-0]"}}));
  // 8 prompts over 3 replicas: 3, 3, 2, of 4 samples each; the scores say which two count.
  EXPECT_THAT(program_text(job, 2),
              ElementsAre("receive rollout g_pi 12-24 rank 0",
                          "receive score g_pi 12-24 rank 0",
                          "infer i_ref 12-24",
                          "send ref_logprobs i_ref 12-24 rank 0"));
  // 3 prompts x 2 sequences x (index and 4 log-probabilities).
  EXPECT_EQ(job.ranks[2].program[3].capacity_bytes, 3 * 2 * (4 + 16));
  EXPECT_EQ(failure(job), "");
}

TEST(Programs, OfARewardModelTakeItsScores) {
  WorkloadConfig inputs = tiny_inputs(Algorithm::kGrpo);
  inputs.policy.reward = RewardSource::kModel;
  inputs.models[static_cast<std::size_t>(ModelRole::kReward)] = tiny_spec();
  const Job job = tiny_job(
      tiny_plan(inputs, {{"g_pi", "r0 n[0-0] g[0-0]"}, {"i_R", "r0 n[0-0] g[1-2] as 1 1 2"}}));
  EXPECT_THAT(
      program_text(job, 1),
      ElementsAre(
          "receive rollout g_pi 0-16 rank 0", "infer i_R 0-16", "send score i_R 0-16 rank 0"));
  EXPECT_THAT(program_text(job, 2), ElementsAre("infer i_R 0-16"));  // its leader talks
  EXPECT_TRUE(copy_of(job, find_vertex(job.graph, "i_R")).is_frozen);
  EXPECT_EQ(failure(job), "");
}

WorkloadConfig shared_inputs() {
  WorkloadConfig inputs = tiny_inputs(Algorithm::kPpo);
  inputs.policy.allow_ac_share = true;
  inputs.models[static_cast<std::size_t>(ModelRole::kCritic)] = inputs.models[0];
  return inputs;
}

TEST(Copies, OfASharedTrunkHaveBothHeads) {
  const Job job = tiny_job(tiny_plan(shared_inputs(), {}, {.ac_share = true}));
  ASSERT_EQ(job.copies.size(), 2U);  // the reference has its own
  EXPECT_TRUE(job.copies[0].is_trained);
  EXPECT_EQ(job.copies[0].head, Head::kBoth);
  EXPECT_EQ(job.copies[0].vertices.size(), 3U);
  EXPECT_TRUE(job.transfers.empty());
  EXPECT_EQ(failure(job), "");
}

TEST(Copies, ThatArePublishedGoThroughMessages) {
  const Job job = tiny_job(tiny_plan(tiny_inputs(Algorithm::kGrpo), {}), Publish::kBuffered);
  EXPECT_EQ(job.copies.size(), 3U);
  EXPECT_THAT(program_text(job, 0),
              ElementsAre("receive_weights t_pi rank 0",
                          "generate g_pi 0-16",
                          "infer i_ref 0-16",
                          "train t_pi 0-16",
                          "send_weights t_pi rank 0"));
  EXPECT_EQ(failure(job), "");
}

TEST(Copies, AreSharedOnlyInStep) {
  const Structure structure{.tau_actor = 1, .tau_critic = 1, .ac_share = true};
  PlanFile plan = tiny_plan(shared_inputs(), {}, structure);
  EXPECT_EQ(tiny_job(plan).copies.size(), 3U);  // trained, read by g_pi and i_V, reference
  for (ScheduleEntry& entry : plan.schedule) {
    entry.shift = entry.id == "g_pi" ? 0 : 1;  // g_pi of iteration k + 1 before i_V of k
  }
  const Job job = tiny_job(plan);
  EXPECT_EQ(job.copies.size(), 4U);
  EXPECT_EQ(failure(job), "");
}

TEST(Transfers, DealTensorsByBytesOverReplicas) {
  const Job job = tiny_job(tiny_plan(tiny_inputs(Algorithm::kGrpo),
                                     {{"g_pi", "r0 n[0-0] g[0-1]"}, {"t_pi", "r0 n[0-0] g[1-3]"}}));
  // Rank 1 trains and generates; only rank 0 needs weights, from three replicas.
  ASSERT_EQ(job.transfers.size(), 1U);
  const WeightTransfer& transfer = job.transfers[0];
  EXPECT_EQ(transfer.tensors.front().name, "model.embed_tokens.weight");
  ASSERT_EQ(transfer.messages.size(), 4U);  // one of them from rank 1 to itself
  std::vector<int> copies(transfer.tensors.size(), 0);
  std::int64_t total = 0;
  std::int64_t most = 0;
  for (const WeightMessage& message : transfer.messages) {
    if (message.from == message.to) {
      continue;
    }
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

TEST(Transfers, TakeWhatIsNear) {
  // Both nodes train whole copies; the generating ranks get theirs from their own node.
  const Job job = tiny_job(tiny_plan(tiny_inputs(Algorithm::kGrpo),
                                     {{"g_pi", "r0 n[0-1] g[0-0]"}, {"t_pi", "r0 n[0-1] g[1-2]"}}));
  ASSERT_EQ(job.transfers.size(), 1U);
  EXPECT_EQ(job.transfers[0].messages.size(), 4U);
  for (const WeightMessage& message : job.transfers[0].messages) {
    EXPECT_EQ(job.ranks[static_cast<std::size_t>(message.from)].node,
              job.ranks[static_cast<std::size_t>(message.to)].node);
  }
}

TEST(Transfers, LeaveWhatTheReceiverTrains) {
  // Rank 0 trains the first half of every matrix and needs all of it.
  const Job job =
      tiny_job(tiny_plan(tiny_inputs(Algorithm::kGrpo),
                         {{"g_pi", "r0 n[0-0] g[0-1]"}, {"t_pi", "r0 n[0-0] g[0-1] as 1 1 2"}}));
  ASSERT_EQ(job.transfers[0].messages.size(), 4U);
  const WeightMessage& message = job.transfers[0].messages[2];  // 1 to 0
  EXPECT_EQ(message.from, 1);
  EXPECT_EQ(message.to, 0);
  // Half of embedding, head, Q, O and FFN; K and V of the one key-value head are on both.
  EXPECT_EQ(message.bytes, 4 * (2 * 32 + 2 * (32 + 32 + 144)));
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

}  // namespace
}  // namespace rpeg
