#include "rpeg/runtime/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/hf/safetensors.h"
#include "rpeg/model/parameters.h"
#include "rpeg/trace/trace.h"
#include "runtime/replay.h"
#include "support/copy_job.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Generation and training on disjoint ranks, inference across them.
const std::map<std::string, std::string> kDisjoint = {{"g_pi", "r0 n[0-0] g[0-1]"},
                                                      {"i_ref", "r0 n[0-0] g[1-2]"},
                                                      {"i_V", "r0 n[0-0] g[0-0]"},
                                                      {"i_pi", "r0 n[0-0] g[1-1]"},
                                                      {"t_V", "r0 n[0-0] g[2-3]"},
                                                      {"t_pi", "r0 n[0-0] g[2-3]"}};

RolloutTable rollouts_of(const fs::path& directory) {
  return load_rollouts(directory / "rollouts.jsonl");
}

/// Runs a layout of `options`, replaying `replay` if given.
RunSummary run_layout(CopyJob options,
                      const std::map<std::string, std::string>& placements,
                      const std::string& elsewhere,
                      const fs::path& directory,
                      const fs::path& replay = {}) {
  options.placements = placements;
  options.elsewhere = elsewhere;
  RunOptions run;
  run.replay = replay;
  return run_on_threads(compile_copy_job(options, directory), run);
}

void expect_equal_losses(const RunSummary& a, const RunSummary& b, double tolerance) {
  ASSERT_EQ(a.iterations.size(), b.iterations.size());
  for (std::size_t k = 0; k < a.iterations.size(); ++k) {
    SCOPED_TRACE("iteration " + std::to_string(k));
    const IterationMetrics& x = a.iterations[k];
    const IterationMetrics& y = b.iterations[k];
    EXPECT_NEAR(x.policy_loss, y.policy_loss, tolerance);
    EXPECT_NEAR(x.gradient_norm_actor, y.gradient_norm_actor, tolerance);
    EXPECT_NEAR(x.kl_reference, y.kl_reference, tolerance);
    EXPECT_NEAR(x.entropy, y.entropy, tolerance);
    if (!std::isnan(x.value_loss)) {
      EXPECT_NEAR(x.value_loss, y.value_loss, tolerance);
      EXPECT_NEAR(x.gradient_norm_critic, y.gradient_norm_critic, tolerance);
    }
  }
}

class EveryAlgorithm : public testing::TestWithParam<Algorithm> {
 protected:
  CopyJob options() const {
    CopyJob job;
    job.algorithm = GetParam();
    return job;
  }
  fs::path directory(const std::string& name) const {
    return fresh_directory(std::string(to_string(GetParam())) + "_" + name);
  }
};

INSTANTIATE_TEST_SUITE_P(Run,
                         EveryAlgorithm,
                         testing::Values(Algorithm::kGrpo, Algorithm::kPpo),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

TEST_P(EveryAlgorithm, FirstUpdateIsOnPolicy) {
  const RunSummary summary = run_on_threads(compile_copy_job(options(), directory("on_policy")));
  ASSERT_EQ(summary.iterations.size(), 3U);
  for (const IterationMetrics& metrics : summary.iterations) {
    EXPECT_LT(metrics.mismatch_max, 1e-5);
    EXPECT_NEAR(metrics.kl_old, 0.0, 1e-5);
    EXPECT_EQ(metrics.clip_fraction, 0.0);
    EXPECT_EQ(metrics.response_tokens_mean, 3.0);
    EXPECT_GT(metrics.gradient_norm_actor, 0.0);
  }
  EXPECT_NEAR(summary.iterations[0].kl_reference, 0.0, 1e-6);
  EXPECT_GT(std::abs(summary.iterations[2].kl_reference), 1e-7);
  // Ten digits, "=" and a token without text, almost uniform at first: entropy ln 12.
  EXPECT_NEAR(summary.iterations[0].entropy, std::log(12.0), 0.05);
}

TEST_P(EveryAlgorithm, LayoutChangesNothing) {
  CopyJob job = options();
  job.iterations = 5;
  job.minibatches = 2;
  const fs::path one = directory("one");
  const fs::path two = directory("two");
  const fs::path four = directory("four");
  const RunSummary alone = run_layout(job, {}, "r0 n[0-0] g[0-0]", one);
  // Iteration 0 needs no replay: all layouts start from the same weights and noise.
  CopyJob first = job;
  first.iterations = 1;
  run_layout(first, {}, "r0 n[0-0] g[0-1]", two);
  run_layout(first, kDisjoint, "", four);
  const RolloutTable of_one = rollouts_of(one);
  const RolloutTable of_two = rollouts_of(two);
  ASSERT_EQ(of_two.size(), 32U);
  for (const auto& [key, record] : rollouts_of(four)) {
    EXPECT_EQ(record.rollout.tokens, of_one.at(key).rollout.tokens);
    EXPECT_EQ(record.reward, of_one.at(key).reward);
    EXPECT_EQ(record.rollout.tokens, of_two.at(key).rollout.tokens);
  }
  const fs::path recorded = one / "rollouts.jsonl";
  expect_equal_losses(
      alone, run_layout(job, {}, "r0 n[0-0] g[0-1]", directory("two_r"), recorded), 1e-5);
  expect_equal_losses(alone, run_layout(job, kDisjoint, "", directory("four_r"), recorded), 1e-5);
}

TEST_P(EveryAlgorithm, MicroBatchesChangeNothing) {
  CopyJob job = options();
  job.epochs = 2;
  const fs::path whole = directory("whole");
  const RunSummary one = run_layout(job, {}, "r0 n[0-0] g[0-0]", whole);
  job.micro_batches = 5;  // 32 sequences: pieces of 7, 7, 6, 6, 6
  const RunSummary five =
      run_layout(job, {}, "r0 n[0-0] g[0-0]", directory("pieces"), whole / "rollouts.jsonl");
  expect_equal_losses(one, five, 1e-5);
}

TEST_P(EveryAlgorithm, RunsTwiceToTheSameBits) {
  CopyJob job = options();
  const fs::path first = directory("first");
  const fs::path second = directory("second");
  run_layout(job, kDisjoint, "", first);
  run_layout(job, kDisjoint, "", second);
  EXPECT_EQ(read_file(first / "rollouts.jsonl"), read_file(second / "rollouts.jsonl"));
}

TEST(Run, RecomputedLogProbabilitiesEqualThoseOfTheGenerator) {
  CopyJob job;
  const fs::path given = fresh_directory("given");
  const RunSummary generator = run_layout(job, {}, "r0 n[0-0] g[0-0]", given);
  job.recompute_logprobs = true;
  const RunSummary recomputed =
      run_layout(job, kDisjoint, "", fresh_directory("recomputed"), given / "rollouts.jsonl");
  expect_equal_losses(generator, recomputed, 1e-5);
}

TEST(Run, ReplayLeavesTheRecordingAlone) {
  CopyJob job;
  const fs::path directory = fresh_directory("again");
  const Job compiled = compile_copy_job(job, directory);
  run_on_threads(compiled);
  const std::string recorded = read_file(directory / "rollouts.jsonl");
  RunOptions replay;
  replay.replay = directory / "rollouts.jsonl";
  replay.max_iterations = 1;
  run_on_threads(compiled, replay);
  EXPECT_EQ(read_file(directory / "rollouts.jsonl"), recorded);
}

TEST(Run, LearnsToCopy) {
  CopyJob job;
  job.iterations = 30;
  job.prompts = 32;
  job.samples = 8;
  const fs::path directory = fresh_directory("learns");
  const RunSummary summary = run_on_threads(compile_copy_job(job, directory));
  const auto mean = [&](std::size_t first) {
    double sum = 0.0;
    for (std::size_t k = first; k < first + 5; ++k) {
      sum += summary.iterations[k].reward_mean / 5.0;
    }
    return sum;
  };
  EXPECT_LT(mean(0), 0.12);
  EXPECT_GT(mean(25), mean(0) + 0.1);
  EXPECT_GT(summary.final_eval_reward, mean(0));
}

TEST(Run, LearningRateZeroLeavesTheWeights) {
  CopyJob job;
  job.learning_rate = 0.0;
  const fs::path directory = fresh_directory("frozen");
  Job compiled = compile_copy_job(job, directory);
  compiled.config.runtime.save_dir = directory / "model";
  const RunSummary summary = run_on_threads(compiled);
  for (const IterationMetrics& metrics : summary.iterations) {
    EXPECT_NEAR(metrics.kl_reference, 0.0, 1e-6);
    EXPECT_LT(metrics.mismatch_max, 1e-5);
  }
  const auto& source = *compiled.config.models[0];
  const ModelSpec spec = load_hf_config(source.path);
  const ParameterLayout layout = build_parameter_layout(spec, Head::kLanguageModel);
  std::vector<float> initial(static_cast<std::size_t>(layout.total));
  std::vector<float> saved(initial.size());
  initialise_parameters(spec, layout, source.seed, initial);
  load_parameters(directory / "model/actor", layout, saved);
  EXPECT_EQ(saved, initial);
  EXPECT_TRUE(fs::exists(directory / "model/actor/tokenizer.json"));
}

TEST(Run, WritesMetricsTracesAndSummary) {
  const fs::path directory = fresh_directory("files");
  CopyJob job;
  job.placements = kDisjoint;
  const Job compiled = compile_copy_job(job, directory);
  run_on_threads(compiled);
  const std::string metrics = read_file(directory / "metrics/metrics.jsonl");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 3);
  EXPECT_THAT(metrics, HasSubstr("\"value_loss\":null"));
  EXPECT_THAT(read_file(directory / "metrics/summary.yaml"), HasSubstr("id: t_pi->g_pi"));
  std::int64_t weight_bytes = 0;
  std::size_t instructions = 0;
  std::size_t drained = 0;  // the weights of the last update arrive after the last iteration
  for (const RankSpec& rank : compiled.ranks) {
    instructions += rank.program.size();
    drained += static_cast<std::size_t>(
        std::ranges::count(rank.program, InstructionKind::kReceiveWeights, &Instruction::kind));
  }
  const std::vector<TraceEvent> events = all_events(load_trace(directory / "trace"));
  EXPECT_EQ(events.size(), 3 * instructions + drained);
  for (const TraceEvent& event : events) {
    EXPECT_LE(event.start_s, event.end_s);
    weight_bytes += event.kind == "receive_weights" && event.iteration == 1 ? event.bytes : 0;
  }
  // Both generating ranks get the whole model once an iteration.
  const ModelSpec spec = compiled.inputs.model(ModelRole::kActor);
  const auto parameters = build_parameter_layout(spec, Head::kLanguageModel).total;
  EXPECT_EQ(weight_bytes, 2 * 4 * parameters);
}

TEST(Run, TrainingStartsWhenAllItsReplicasAreThere) {
  const fs::path directory = fresh_directory("waits");
  CopyJob job;
  job.algorithm = Algorithm::kPpo;
  job.prompts = 32;
  job.placements = {{"t_V", "r0 n[0-0] g[1-1]"}};
  job.elsewhere = "r0 n[0-0] g[0-1]";
  run_on_threads(compile_copy_job(job, directory));
  std::map<std::int64_t, double> critic_ends;  // by iteration
  std::map<std::int64_t, double> actor_starts;
  for (const TraceEvent& event : all_events(load_trace(directory / "trace"))) {
    if (event.kind == "train" && event.vertex == "t_V") {
      critic_ends[event.iteration] = event.end_s;
    } else if (event.kind == "train" && event.rank == 0) {
      actor_starts[event.iteration] = event.start_s;
    }
  }
  ASSERT_EQ(actor_starts.size(), 3U);
  constexpr double kClocks_s = 5e-3;  // the clocks of two ranks agree better than that
  for (const auto& [iteration, start_s] : actor_starts) {
    EXPECT_GT(start_s, critic_ends.at(iteration) - kClocks_s) << "iteration " << iteration;
  }
}

TEST(Run, EvaluationIsTheSameOnAnyNumberOfRanks) {
  RunOptions options;
  options.eval_only = true;
  CopyJob job;
  const auto reward = [&](const std::string& block) {
    job.elsewhere = block;
    return run_on_threads(compile_copy_job(job, fresh_directory("eval")), options)
        .final_eval_reward;
  };
  const double alone = reward("r0 n[0-0] g[0-0]");
  EXPECT_GE(alone, 0.0);
  EXPECT_NEAR(reward("r0 n[0-0] g[0-2]"), alone, 1e-12);
}

TEST(Run, AnEarlierEvaluationIsNotThatOfTheFinalWeights) {
  std::atomic<bool> stop{false};
  RunOptions options;
  options.stop = &stop;
  options.on_iteration = [&](const IterationMetrics& metrics) { stop = metrics.iteration == 2; };
  CopyJob fifty;
  fifty.iterations = 50;
  Job job = compile_copy_job(fifty, fresh_directory("earlier"));
  job.config.data.eval_every = 2;
  const RunSummary summary = run_on_threads(job, options);
  ASSERT_EQ(summary.iterations.size(), 3U);
  EXPECT_TRUE(std::isnan(summary.iterations[0].eval_reward));
  EXPECT_TRUE(std::isnan(summary.iterations[1].eval_reward));
  EXPECT_FALSE(std::isnan(summary.iterations[2].eval_reward));
  EXPECT_TRUE(std::isnan(summary.final_eval_reward));
}

TEST(Run, StopsAfterTheIterationOnRequest) {
  std::atomic<bool> stop{false};
  RunOptions options;
  options.stop = &stop;
  options.on_iteration = [&](const IterationMetrics&) { stop = true; };
  const fs::path directory = fresh_directory("stop");
  CopyJob job;
  job.iterations = 50;
  job.elsewhere = "r0 n[0-0] g[0-1]";
  Job compiled = compile_copy_job(job, directory);
  compiled.config.runtime.save_dir = directory / "model";
  const RunSummary summary = run_on_threads(compiled, options);
  EXPECT_TRUE(summary.stopped);
  EXPECT_EQ(summary.iterations.size(), 1U);
  EXPECT_TRUE(fs::exists(directory / "model/actor/model.safetensors"));
}

}  // namespace
}  // namespace rpeg
