#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <limits>
#include <thread>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/comm/loopback.h"
#include "rpeg/model/parameters.h"
#include "runtime/replay.h"
#include "support/copy_job.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

void expect_error(const std::function<void()>& body, ErrorKind kind, const std::string& part) {
  try {
    body();
    FAIL() << "expected an error with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

/// A model directory whose weights are the random ones, with one of them replaced.
fs::path model_with_weight(const Job& job, const fs::path& directory, float value) {
  const ModelSource& source = *job.config.models[0];
  const ModelSpec spec = load_hf_config(source.path);
  const ParameterLayout layout = build_parameter_layout(spec, Head::kLanguageModel);
  std::vector<float> weights(static_cast<std::size_t>(layout.total));
  initialise_parameters(spec, layout, source.seed, weights);
  weights[static_cast<std::size_t>(layout.tensors.back().offset)] = value;
  save_hf_directory(directory, spec, layout, weights, source.path);
  return directory;
}

TEST(RunFailure, NamesTheWorldSize) {
  CopyJob options;
  options.elsewhere = "r0 n[0-0] g[0-3]";
  const Job job = compile_copy_job(options, fresh_directory("size"));
  expect_error([&] { run_on_threads(job, {}, 2); },
               ErrorKind::kUsage,
               "run.yaml needs 4 ranks, mpirun started 2: start with mpirun -np 4");
}

TEST(RunFailure, NamesVertexAndIterationOfANonFiniteWeight) {
  const fs::path directory = fresh_directory("nan");
  Job job = compile_copy_job({}, directory);
  job.config.models[0] = ModelSource{
      .path = model_with_weight(job, directory / "bad", std::numeric_limits<float>::quiet_NaN()),
      .random_init = false,
      .seed = 0,
      .init_from = {}};
  expect_error([&] { run_on_threads(job); }, ErrorKind::kRuntime, "g_pi, iteration 0");
}

TEST(RunFailure, NamesVertexAndIterationOfANonFiniteLoss) {
  const fs::path directory = fresh_directory("nan_loss");
  CopyJob options;
  options.elsewhere = "r0 n[0-0] g[0-1]";
  run_on_threads(compile_copy_job(options, directory));
  // Recorded rollouts reach training even though the weights cannot generate.
  Job job = compile_copy_job(options, fresh_directory("nan_loss_replay"));
  job.config.models[0] = ModelSource{
      .path = model_with_weight(job, directory / "bad", std::numeric_limits<float>::quiet_NaN()),
      .random_init = false,
      .seed = 0,
      .init_from = {}};
  RunOptions replay;
  replay.replay = directory / "rollouts.jsonl";
  expect_error([&] { run_on_threads(job, replay); },
               ErrorKind::kRuntime,
               "t_pi, iteration 0, mini-batch 0: loss is nan");
}

TEST(RunFailure, ExplosionNamesTheIteration) {
  CopyJob options;
  options.learning_rate = 1e38;
  options.iterations = 5;
  expect_error([&] { run_on_threads(compile_copy_job(options, fresh_directory("explode"))); },
               ErrorKind::kRuntime,
               "iteration 1");
}

TEST(RunFailure, ReplayMustHoldTheIteration) {
  const fs::path directory = fresh_directory("short");
  CopyJob options;
  options.iterations = 1;
  run_on_threads(compile_copy_job(options, directory));
  options.iterations = 2;
  RunOptions replay;
  replay.replay = directory / "rollouts.jsonl";
  expect_error(
      [&] { run_on_threads(compile_copy_job(options, fresh_directory("short_replay")), replay); },
      ErrorKind::kUsage,
      "no rollout of iteration 1, prompt 0, sample 0");
}

/// Replays `record` as the only response of the only prompt.
void expect_unfit_record(const RolloutRecord& record, const std::string& complaint) {
  const fs::path directory = fresh_directory("record");
  CopyJob options;
  options.iterations = 1;
  options.prompts = 1;
  options.samples = 1;
  Job job = compile_copy_job(options, directory);
  job.config.data.shuffle = false;
  write_file_atomic(directory / "bad.jsonl", rollout_line(record));
  RunOptions replay;
  replay.replay = directory / "bad.jsonl";
  expect_error([&] { run_on_threads(job, replay); }, ErrorKind::kUsage, complaint);
}

TEST(RunFailure, ReplayMustFitTheJob) {
  RolloutRecord record;
  record.rollout = {{3, 99, 4}, {-1.0F, -1.0F, -1.0F}, false};
  expect_unfit_record(record, "outside the model's vocabulary of 12");
  record.rollout = {{3, 1, 4, 1}, {-1.0F, -1.0F, -1.0F, -1.0F}, false};
  expect_unfit_record(record, "has 4 tokens, more than the generation_length of 3");
  record.rollout = {{3}, {-1.0F}, false};
  record.dataset_index = 5;
  expect_unfit_record(record, "answers prompt 5 of the data, but this run draws prompt 0");
}

TEST(RunTogether, AllRanksThrowWhatOneThrew) {
  auto ranks = make_loopback(3);
  std::vector<std::string> messages(3);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        run_together(*ranks[rank], [&] {
          if (rank == 1) {
            throw Error(ErrorKind::kUsage, "no such file");
          }
        });
      } catch (const Error& error) {
        messages[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(messages, testing::Each("rank 1: no such file"));
}

}  // namespace
}  // namespace rpeg
