// Iterations that overlap: versions, buffers, stops, stages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/trace/check_trace.h"
#include "runtime/executor.h"
#include "runtime/replay.h"
#include "support/copy_job.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

/// Generation on one rank, everything else on the other.
const std::map<std::string, std::string> kApart = {{"g_pi", "r0 n[0-0] g[0-0]"}};

Job compiled(const CopyJob& options, const fs::path& directory) {
  Job job = compile_copy_job(options, directory);
  job.config.runtime.save_dir = directory / "model";
  return job;
}

std::string saved(const fs::path& directory, const std::string& model) {
  return read_file(directory / "model" / model / "model.safetensors");
}

void expect_trace_as_compiled(const Job& job, const fs::path& directory) {
  EXPECT_EQ(violations_text(check_trace(job, load_trace(directory / "trace"))),
            violations_text({}));
}

/// Version that each iteration's computations of a kind read.
std::map<std::int64_t, std::int64_t> versions(const fs::path& directory, const std::string& kind) {
  std::map<std::int64_t, std::int64_t> read;
  for (const TraceEvent& event : all_events(load_trace(directory / "trace"))) {
    if (event.kind == kind) {
      read[event.iteration] = event.version;
    }
  }
  return read;
}

class Staleness : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Run, Staleness, testing::Values(0, 1, 2));

TEST_P(Staleness, GenerationUsesExactlyItsVersion) {
  CopyJob options;
  options.tau = GetParam();
  options.iterations = 6;
  options.placements = kApart;
  options.elsewhere = "r0 n[0-0] g[1-1]";
  const fs::path directory = fresh_directory("versions_" + std::to_string(GetParam()));
  const Job job = compiled(options, directory);
  EXPECT_EQ(run_on_threads(job).iterations.size(), 6U);
  for (const auto& [iteration, version] : versions(directory, "generate")) {
    EXPECT_EQ(version, std::max<std::int64_t>(0, iteration - GetParam()));
  }
  expect_trace_as_compiled(job, directory);
  for (const auto& [key, record] : load_rollouts(directory / "rollouts.jsonl")) {
    EXPECT_EQ(record.version, std::max<std::int64_t>(0, record.iteration - GetParam()));
  }
}

TEST(StaleRun, ShiftsLetOneRankInterleaveIterations) {
  CopyJob options;
  options.tau = 1;
  options.iterations = 4;
  options.algorithm = Algorithm::kPpo;
  options.shifts = {{"i_ref", 1}, {"i_V", 1}, {"t_V", 1}, {"t_pi", 1}};
  const fs::path shifted = fresh_directory("shifted");
  const Job job = compiled(options, shifted);
  run_on_threads(job);
  expect_trace_as_compiled(job, shifted);
  std::vector<std::int64_t> order;
  for (const TraceEvent& event : all_events(load_trace(shifted / "trace"))) {
    if (event.kind == "generate" || (event.kind == "train" && event.vertex == "t_pi")) {
      order.push_back(event.kind == "train" ? -event.iteration : event.iteration);
    }
  }
  // Generation of iteration k + 1 before training of iteration k.
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 0, 2, -1, 3, -2, -3));
  // When ranks are free to run ahead instead, the numbers are the same.
  options.shifts = {};
  const fs::path free = fresh_directory("free");
  run_on_threads(compiled(options, free));
  EXPECT_EQ(read_file(shifted / "rollouts.jsonl"), read_file(free / "rollouts.jsonl"));
  EXPECT_EQ(saved(shifted, "actor"), saved(free, "actor"));
  EXPECT_EQ(saved(shifted, "critic"), saved(free, "critic"));
}

TEST(StaleRun, StopsTogetherOnRequest) {
  std::atomic<bool> stop{false};
  RunOptions run;
  run.stop = &stop;
  run.on_iteration = [&](const IterationMetrics& metrics) { stop = metrics.iteration >= 2; };
  CopyJob options;
  options.tau = 1;
  options.iterations = 100;
  options.placements = kApart;
  options.elsewhere = "r0 n[0-0] g[1-1]";
  const fs::path directory = fresh_directory("stale_stop");
  const Job job = compiled(options, directory);
  const RunSummary summary = run_on_threads(job, run);
  EXPECT_TRUE(summary.stopped);
  EXPECT_LT(summary.iterations.size(), 50U);
  expect_trace_as_compiled(job, directory);
  EXPECT_TRUE(fs::exists(directory / "model/actor/model.safetensors"));
}

struct NamedLayout {
  std::string name;
  Parallelism parallelism;
};
class Buffered : public testing::TestWithParam<NamedLayout> {};
INSTANTIATE_TEST_SUITE_P(Run,
                         Buffered,
                         testing::Values(NamedLayout{"dp2", {.dp = 2, .pp = 1, .tp = 1}},
                                         NamedLayout{"tp2", {.dp = 1, .pp = 1, .tp = 2}},
                                         NamedLayout{"pp2", {.dp = 1, .pp = 2, .tp = 1}}),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(Buffered, PublishingIsBitIdenticalToInPlace) {
  CopyJob options;
  options.algorithm = Algorithm::kPpo;
  options.layout = GetParam().parallelism;
  options.elsewhere = "r0 n[0-0] g[0-1]";
  const fs::path in_place = fresh_directory("in_place_" + GetParam().name);
  const fs::path buffered = fresh_directory("buffered_" + GetParam().name);
  run_on_threads(compiled(options, in_place));
  options.publish = Publish::kBuffered;
  const Job job = compiled(options, buffered);
  EXPECT_FALSE(job.transfers.empty());
  run_on_threads(job);
  expect_trace_as_compiled(job, buffered);
  EXPECT_EQ(read_file(in_place / "rollouts.jsonl"), read_file(buffered / "rollouts.jsonl"));
  EXPECT_EQ(saved(in_place, "actor"), saved(buffered, "actor"));
  EXPECT_EQ(saved(in_place, "critic"), saved(buffered, "critic"));
}

TEST(MixedLayout, ChangesNothing) {
  CopyJob options;
  options.algorithm = Algorithm::kPpo;
  const fs::path alone = fresh_directory("mixed_alone");
  const RunSummary one = run_on_threads(compiled(options, alone));
  options.elsewhere = "r0 n[0-0] g[0-3]";
  options.layouts = {{"g_pi", {.dp = 2, .pp = 1, .tp = 2}},
                     {"i_ref", {.dp = 1, .pp = 2, .tp = 2}},
                     {"i_V", {.dp = 4, .pp = 1, .tp = 1}},
                     {"t_V", {.dp = 1, .pp = 1, .tp = 4}},
                     {"t_pi", {.dp = 2, .pp = 2, .tp = 1}}};
  const fs::path mixed = fresh_directory("mixed");
  const Job job = compiled(options, mixed);
  RunOptions replay;
  replay.replay = alone / "rollouts.jsonl";
  const RunSummary four = run_on_threads(job, replay);
  expect_trace_as_compiled(job, mixed);
  for (std::size_t k = 0; k < 3; ++k) {
    EXPECT_NEAR(one.iterations[k].policy_loss, four.iterations[k].policy_loss, 1e-5);
    EXPECT_NEAR(one.iterations[k].value_loss, four.iterations[k].value_loss, 1e-5);
    EXPECT_NEAR(one.iterations[k].kl_reference, four.iterations[k].kl_reference, 1e-5);
  }
  EXPECT_NEAR(one.final_eval_reward, four.final_eval_reward, 0.02);
}

TEST(Stages, CutGenerationChangesNeitherTokensNorLosses) {
  for (const bool is_apart : {false, true}) {
    CopyJob options;
    options.algorithm = Algorithm::kPpo;
    options.generation_length = 6;
    options.elsewhere = is_apart ? "r0 n[0-0] g[2-3]" : "r0 n[0-0] g[0-1]";
    options.placements = {{"g_pi", "r0 n[0-0] g[0-1]"}};
    const std::string name = is_apart ? "apart" : "together";
    const fs::path whole = fresh_directory("whole_" + name);
    const fs::path cut = fresh_directory("cut_" + name);
    const RunSummary uncut = run_on_threads(compiled(options, whole));
    options.is_cut = true;
    const Job job = compiled(options, cut);
    const RunSummary fused = run_on_threads(job);
    expect_trace_as_compiled(job, cut);
    const RolloutTable a = load_rollouts(whole / "rollouts.jsonl");
    const RolloutTable b = load_rollouts(cut / "rollouts.jsonl");
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [key, record] : a) {
      EXPECT_EQ(record.rollout.tokens, b.at(key).rollout.tokens);
    }
    for (std::size_t k = 0; k < 3; ++k) {
      EXPECT_NEAR(uncut.iterations[k].policy_loss, fused.iterations[k].policy_loss, 1e-5);
      EXPECT_NEAR(uncut.iterations[k].value_loss, fused.iterations[k].value_loss, 1e-5);
      EXPECT_EQ(uncut.iterations[k].reward_mean, fused.iterations[k].reward_mean);
    }
    RunOptions replay;
    replay.replay = cut / "rollouts.jsonl";
    const fs::path again = fresh_directory("cut_again_" + name);
    run_on_threads(compiled(options, again), replay);
    EXPECT_EQ(saved(again, "actor"), saved(cut, "actor"));
  }
}

TEST(SharedTrunk, SavesBothModels) {
  CopyJob options;
  options.algorithm = Algorithm::kPpo;
  options.ac_share = true;
  options.elsewhere = "r0 n[0-0] g[0-1]";
  options.layout = Parallelism{.dp = 1, .pp = 2, .tp = 1};
  const fs::path directory = fresh_directory("shared");
  const Job job = compiled(options, directory);
  const RunSummary summary = run_on_threads(job);
  EXPECT_FALSE(std::isnan(summary.iterations[2].value_loss));
  EXPECT_THAT(saved(directory, "actor"), testing::HasSubstr("lm_head.weight"));
  EXPECT_THAT(saved(directory, "critic"), testing::HasSubstr("score.weight"));
}

TEST(Commands, RunOnlyWhenAllowed) {
  CopyJob options;
  const fs::path directory = fresh_directory("command");
  Job job = compiled(options, directory);
  job.config.verifier = {};
  job.config.verifier.kind = VerifierKind::kCommand;
  job.config.verifier.command = {"/bin/sh", "-c", "while read -r line; do echo 0.5; done"};
  try {
    run_on_threads(job);
    FAIL() << "the command ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), testing::HasSubstr("--allow-commands"));
  }
  RunOptions allowed;
  allowed.allow_commands = true;
  EXPECT_EQ(run_on_threads(job, allowed).iterations[0].reward_mean, 0.5);
}

TEST(Commands, SayWhereTheyFailed) {
  CopyJob options;
  Job job = compiled(options, fresh_directory("command_fault"));
  job.config.verifier = {};
  job.config.verifier.kind = VerifierKind::kCommand;
  job.config.verifier.command = {"/bin/sh", "-c", "while read -r line; do echo banana; done"};
  RunOptions allowed;
  allowed.allow_commands = true;
  try {
    run_on_threads(job, allowed);
    FAIL() << "nonsense was taken for a reward";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
    EXPECT_THAT(error.what(), testing::HasSubstr("g_pi, iteration 0: reward command"));
    EXPECT_THAT(error.what(), testing::HasSubstr("banana"));
  }
}

TEST(Commands, FailureInTheLastEvaluationLeavesTheModels) {
  CopyJob options;
  const fs::path directory = fresh_directory("command_at_the_end");
  Job job = compiled(options, directory);
  job.config.verifier = {};
  job.config.verifier.kind = VerifierKind::kCommand;
  job.config.verifier.command = {
      // a prompt that only data.eval has
      "/bin/sh",
      "-c",
      "while read -r line; do case $line in *696=*) exit 3;; *) echo 0.5;; esac; done"};
  RunOptions allowed;
  allowed.allow_commands = true;
  EXPECT_THROW(run_on_threads(job, allowed), Error);
  EXPECT_FALSE(saved(directory, "actor").empty());
}

TEST(Commands, OtherRanksWaitAsLongAsACommandMayTake) {
  CopyJob options;
  Job job = compiled(options, fresh_directory("command_wait"));
  const double without_s = wait_limit_s(job, 0.0, 2);
  job.config.verifier.kind = VerifierKind::kCommand;
  job.config.verifier.timeout_s = 300.0;
  EXPECT_EQ(wait_limit_s(job, 0.0, 2), without_s + 2 * 300.0);
  job.plan.structure.cuts = 0b101;  // three batches an iteration
  EXPECT_EQ(wait_limit_s(job, 0.0, 2), without_s + 2 * 3 * 300.0);
}

TEST(Preferences, FirstLossIsLogTwo) {
  const fs::path directory = fresh_directory("dpo");
  std::string lines;
  for (int i = 0; i < 8; ++i) {
    lines += "{\"prompt\": \"" + std::to_string(100 + i) + "=\", \"chosen\": \"" +
             std::to_string(100 + i) + "\", \"rejected\": \"" + std::to_string(9 - i) + "\"}\n";
  }
  write_file_atomic(directory / "pairs.jsonl", lines);
  CopyJob options;
  options.algorithm = Algorithm::kDpo;
  options.samples = 1;
  options.iterations = 4;
  options.elsewhere = "r0 n[0-0] g[0-1]";
  options.placements = {{"i_ref", "r0 n[0-0] g[2-2]"}};
  options.preferences = directory / "pairs.jsonl";
  const Job job = compiled(options, directory);
  const RunSummary summary = run_on_threads(job);
  expect_trace_as_compiled(job, directory);
  ASSERT_EQ(summary.iterations.size(), 4U);
  EXPECT_NEAR(summary.iterations[0].policy_loss, std::log(2.0), 1e-4);
  EXPECT_GT(summary.iterations[3].dpo_margin, summary.iterations[0].dpo_margin);
  EXPECT_EQ(summary.iterations[0].dpo_pairs, 8.0);
  EXPECT_TRUE(std::isnan(summary.iterations[0].reward_std));
  RunOptions replaying;
  replaying.replay = directory / "rollouts.jsonl";
  EXPECT_THROW(run_on_threads(job, replaying), Error);
}

}  // namespace
}  // namespace rpeg
