#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "job/program_machine.h"
#include "rpeg/base/error.h"
#include "support/tiny_job.h"

namespace rpeg {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string failure(const Job& job) {
  try {
    check_programs(job, 3);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "";
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

TEST(CheckPrograms, PrintsTheCycleOfSwappedReceives) {
  // Rank 0 trains the actor and rank 1 the critic: each needs what the other has inferred.
  Job job = tiny_job(tiny_plan(tiny_inputs(Algorithm::kPpo),
                               {{"i_ref", "r0 n[0-0] g[1-1]"}, {"t_V", "r0 n[0-0] g[1-1]"}}));
  EXPECT_EQ(failure(job), "");
  const auto receive_first = [&](std::size_t rank, Payload received, Payload sent) {
    Program& program = job.ranks[rank].program;
    const auto is = [](InstructionKind kind, Payload payload) {
      return
          [kind, payload](const Instruction& i) { return i.kind == kind && i.payload == payload; };
    };
    const auto send =
        std::find_if(program.begin(), program.end(), is(InstructionKind::kSend, sent));
    const auto receive =
        std::find_if(program.begin(), program.end(), is(InstructionKind::kReceive, received));
    ASSERT_LT(send, receive);
    std::rotate(send, receive, receive + 1);
  };
  receive_first(0, Payload::kRefLogprobs, Payload::kValues);
  receive_first(1, Payload::kValues, Payload::kRefLogprobs);
  EXPECT_THAT(failure(job),
              testing::MatchesRegex(
                  "the rank programs deadlock:\n"
                  "  rank 0, instruction [0-9]+ .receive ref_logprobs of i_ref from rank 1, tag "
                  "[0-9]+. of iteration 0 waits for rank 1\n"
                  "  rank 1, instruction [0-9]+ .receive values of i_V from rank 0, tag [0-9]+. of "
                  "iteration 0 waits for rank 0"));
}

TEST(CheckPrograms, RejectsWeightsThatArriveInPart) {
  // Each half of the matrices comes from another rank.
  Job job =
      tiny_job(tiny_plan(tiny_inputs(Algorithm::kGrpo),
                         {{"g_pi", "r0 n[0-0] g[2-2]"}, {"t_pi", "r0 n[0-0] g[0-1] as 1 1 2"}}));
  // The message of one transfer is dropped on both sides.
  Program& to = job.ranks[2].program;
  const auto receive = find(to, InstructionKind::kReceiveWeights);
  Program& from = job.ranks[static_cast<std::size_t>(receive->peer)].program;
  from.erase(std::find_if(from.begin(), from.end(), [&](const Instruction& i) {
    return i.kind == InstructionKind::kSendWeights && i.message == receive->message;
  }));
  to.erase(receive);
  EXPECT_THAT(failure(job),
              AllOf(HasSubstr("(generate g_pi) of iteration 1"),
                    HasSubstr("needs version 1 of the actor's weights, but a newer one")));
}

/// A rank that generates and infers with one stale copy, one that trains the shared trunk.
Job stale_job() {
  WorkloadConfig inputs = tiny_inputs(Algorithm::kPpo);
  inputs.policy.allow_ac_share = true;
  inputs.models[static_cast<std::size_t>(ModelRole::kCritic)] = inputs.models[0];
  return tiny_job(tiny_plan(inputs,
                            {{"t_piV", "r0 n[0-0] g[1-1]"}},
                            {.tau_actor = 1, .tau_critic = 1, .ac_share = true}));
}

TEST(CheckPrograms, RejectsAWrongVersion) {
  Job job = stale_job();
  EXPECT_EQ(failure(job), "");
  // The weights for iteration k arrive in the period of iteration k + 1.
  find(job.ranks[0].program, InstructionKind::kReceiveWeights)->shift = 1;
  EXPECT_THAT(failure(job),
              AllOf(HasSubstr("rank 0, instruction 1 (generate g_pi) of iteration 2"),
                    HasSubstr("needs version 1 of the actor's weights, but has version 0")));
}

TEST(CheckPrograms, RejectsAnOverwrittenBuffer) {
  Job job = stale_job();
  Program& program = job.ranks[0].program;
  for (Instruction& instruction : program) {
    instruction.shift = instruction.kind == InstructionKind::kReceiveWeights ? 0 : 1;
  }
  // The weights of the next iteration come between g_pi and i_V of this one.
  std::swap(program[0], program[1]);
  EXPECT_THAT(failure(job),
              AllOf(HasSubstr("(receive_weights of t_piV from rank 1"),
                    HasSubstr("overwrites the actor's weights before i_V of iteration")));
}

TEST(CheckPrograms, RejectsACollectiveThatOneMemberSkips) {
  Job job = ppo_job();
  Program& program = job.ranks[1].program;
  program.erase(find(program, InstructionKind::kTrain));
  EXPECT_THAT(failure(job), HasSubstr("rank 1 computes t_V 0 times"));
}

TEST(CheckPrograms, RejectsACollectiveInDifferentIterations) {
  Job job = ppo_job();
  find(job.ranks[1].program, InstructionKind::kTrain)->shift = 1;
  EXPECT_THAT(failure(job), HasSubstr("(train t_V)"));
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
  const auto compute = find(program, InstructionKind::kGenerate);
  std::rotate(compute, compute + 1, compute + 2);
  EXPECT_THAT(failure(job), HasSubstr("sends what the rank has not computed"));
}

TEST(CheckPrograms, RejectsAMissingInput) {
  Job job = ppo_job();
  Program& program = job.ranks[0].program;
  const auto train = find(program, InstructionKind::kTrain);
  std::rotate(train - 1, train, train + 1);  // before its last input
  EXPECT_THAT(failure(job), AllOf(HasSubstr("(train t_V)"), HasSubstr("its input is not there")));
}

/// Sends what rank 2 sends first once more, with another tag.
Instruction repeat_first_send(Job* job) {
  Program& program = job->ranks[2].program;
  const auto send = find(program, InstructionKind::kSend);
  Instruction extra = *send;
  extra.tag = 999;
  program.insert(send, extra);
  return extra;
}

TEST(CheckPrograms, RejectsAnInputThatComesTwice) {
  Job job = ppo_job();
  const Instruction extra = repeat_first_send(&job);
  Program& program = job.ranks[static_cast<std::size_t>(extra.peer)].program;
  Instruction receive = extra;
  receive.kind = InstructionKind::kReceive;
  receive.peer = 2;
  program.insert(program.begin(), receive);
  EXPECT_THAT(failure(job), HasSubstr("gets what the rank has already"));
}

TEST(CheckPrograms, RejectsAMessageThatNobodyReceives) {
  Job job = ppo_job();
  (void)repeat_first_send(&job);
  EXPECT_THAT(failure(job), HasSubstr("runs ahead of its receiver"));
  try {
    execute_symbolically(job, 1, std::vector<std::int64_t>(1000, 4));
    FAIL() << "a message is left over";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("nobody receives this message"));
  }
}

TEST(CheckPrograms, RejectsAReferenceThatRunsAhead) {
  WorkloadConfig inputs = tiny_inputs(Algorithm::kDpo);
  inputs.workload.samples_per_prompt = 1;
  Job job = tiny_job(tiny_plan(inputs, {{"t_pi", "r0 n[0-0] g[1-1]"}}));
  EXPECT_EQ(failure(job), "");
  // Without the empty message nothing holds it back.
  Program& reference = job.ranks[0].program;
  reference.erase(find(reference, InstructionKind::kReceive));
  Program& training = job.ranks[1].program;
  training.erase(find(training, InstructionKind::kSend));
  EXPECT_THAT(failure(job), AllOf(HasSubstr("runs ahead of its receiver"), HasSubstr("at most 2")));
}

}  // namespace
}  // namespace rpeg
