// rpeg-run as its users start it: exit codes, messages, signals, a rank that dies.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <future>
#include <limits>
#include <thread>

#include "rpeg/base/file.h"
#include "rpeg/model/parameters.h"
#include "runtime/replay.h"
#include "support/command.h"
#include "support/copy_job.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

fs::path compile_to(const CopyJob& options, const fs::path& directory) {
  Job job = compile_copy_job(options, directory);
  job.config.runtime.save_dir = directory / "model";
  return write_run_yaml(job, directory);
}

/// A job on two ranks that runs until something ends it.
fs::path endless_job(const fs::path& directory) {
  CopyJob options;
  options.iterations = 1'000'000;
  options.learning_rate = 0.0;
  options.elsewhere = "r0 n[0-0] g[0-1]";
  return compile_to(options, directory);
}

/// Process ids of the rpeg-run processes of a run.
std::vector<pid_t> ranks_of(const fs::path& run_yaml) {
  std::vector<pid_t> ranks;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::error_code error;
    const fs::path executable = fs::read_symlink(entry.path() / "exe", error);
    std::ifstream in(entry.path() / "cmdline");
    const std::string command((std::istreambuf_iterator<char>(in)), {});
    if (executable.filename() == "rpeg-run" &&
        command.find(run_yaml.string()) != std::string::npos) {
      ranks.push_back(std::stoi(entry.path().filename().string()));
    }
  }
  return ranks;
}

/// Starts the job, waits for its first iterations, sends a signal to one rank, returns the end.
CommandResult signal_one_rank(const fs::path& directory, int signal) {
  const fs::path run_yaml = endless_job(directory);
  auto end = std::async(std::launch::async,
                        [&] { return run_command(rpeg_run_command(2, run_yaml, "--quiet")); });
  const fs::path metrics = directory / "metrics/metrics.jsonl";
  for (int i = 0; i < 600 && (!fs::exists(metrics) || fs::file_size(metrics) == 0); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const std::vector<pid_t> ranks = ranks_of(run_yaml);
  EXPECT_EQ(ranks.size(), 2U);
  if (!ranks.empty()) {
    ::kill(ranks.back(), signal);
  }
  return end.get();
}

TEST(RpegRun, RunsOneRankWithoutMpirun) {
  const fs::path directory = fresh_directory("e2e_single");
  const fs::path run_yaml = compile_to({}, directory);
  const CommandResult result = run_command(rpeg_run_command(0, run_yaml));
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("iteration 3/3"));
  EXPECT_THAT(result.output, HasSubstr("predicted"));
  EXPECT_THAT(result.output, HasSubstr("held-out reward (greedy)"));
  EXPECT_TRUE(fs::exists(directory / "model/actor/model.safetensors"));
}

TEST(RpegRun, EvaluatesWithoutTouchingAnEarlierRun) {
  const fs::path directory = fresh_directory("e2e_eval");
  const fs::path run_yaml = compile_to({}, directory);
  ASSERT_EQ(run_command(rpeg_run_command(0, run_yaml, "--quiet")).code, 0);
  const std::string metrics = read_file(directory / "metrics/metrics.jsonl");
  const CommandResult result = run_command(rpeg_run_command(0, run_yaml, "--eval-only --quiet"));
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("held-out reward (greedy)"));
  EXPECT_EQ(read_file(directory / "metrics/metrics.jsonl"), metrics);
}

TEST(RpegRun, RefusesTheWrongNumberOfRanksOnce) {
  const fs::path directory = fresh_directory("e2e_ranks");
  CopyJob options;
  options.elsewhere = "r0 n[0-0] g[0-3]";
  const CommandResult result = run_command(rpeg_run_command(2, compile_to(options, directory)));
  EXPECT_EQ(result.code, 2) << result.output;
  const std::string message = "run.yaml needs 4 ranks, mpirun started 2: start with mpirun -np 4";
  EXPECT_EQ(count_of(result.output, message), 1U) << result.output;
}

TEST(RpegRun, RefusesAMissingFileOnce) {
  const CommandResult result = run_command(rpeg_run_command(2, "/nowhere/run.yaml"));
  EXPECT_EQ(result.code, 2) << result.output;
  EXPECT_EQ(count_of(result.output, "/nowhere/run.yaml"), 1U) << result.output;
}

TEST(RpegRun, EndsWith4OnANonFiniteWeight) {
  const fs::path directory = fresh_directory("e2e_nan");
  Job job = compile_copy_job({}, directory);
  const ModelSource source = *job.config.models[0];
  const ModelSpec spec = load_hf_config(source.path);
  const ParameterLayout layout = build_parameter_layout(spec, Head::kLanguageModel);
  const std::vector<float> weights(static_cast<std::size_t>(layout.total),
                                   std::numeric_limits<float>::quiet_NaN());
  save_hf_directory(directory / "bad", spec, layout, weights, source.path);
  job.config.models[0] =
      ModelSource{.path = directory / "bad", .random_init = false, .seed = 0, .init_from = {}};
  const CommandResult result =
      run_command(rpeg_run_command(0, write_run_yaml(job, directory), "--quiet"));
  EXPECT_EQ(result.code, 4) << result.output;
  EXPECT_THAT(result.output, HasSubstr("g_pi, iteration 0"));
}

TEST(RpegRun, ARankThatDiesEndsTheJob) {
  const auto start = std::chrono::steady_clock::now();
  const CommandResult result = signal_one_rank(fresh_directory("e2e_kill"), SIGKILL);
  EXPECT_NE(result.code, 0);
  EXPECT_NE(result.code, 124) << "the survivors waited until the test's time-out";
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(55));
}

TEST(RpegRun, StopsOnASignalAndSaves) {
  const fs::path directory = fresh_directory("e2e_stop");
  const CommandResult result = signal_one_rank(directory, SIGUSR1);
  EXPECT_EQ(result.code, 75) << result.output;
  EXPECT_THAT(result.output, HasSubstr("stopped by a signal"));
  EXPECT_TRUE(fs::exists(directory / "model/actor/model.safetensors"));
  EXPECT_TRUE(fs::exists(directory / "metrics/summary.yaml"));
}

TEST(RpegRun, ShowsALiveLineOnlyOnATerminal) {
  if (run_command("command -v script").code != 0) {
    GTEST_SKIP() << "util-linux's script is not installed";
  }
  CopyJob options;
  options.elsewhere = "r0 n[0-0] g[0-1]";
  const std::string command =
      rpeg_run_command(2, compile_to(options, fresh_directory("e2e_terminal")));
  const std::string live = "\r\033[Kiteration 3/3";
  const CommandResult terminal = run_command("script -qec \"" + command + "\" /dev/null");
  EXPECT_THAT(terminal.output, HasSubstr(live));
  EXPECT_THAT(run_command(command).output, testing::Not(HasSubstr("\033")));
}

TEST(RpegRun, TheScriptPassesARequestToStopOn) {
  const fs::path directory = fresh_directory("e2e_script");
  const fs::path run_yaml = endless_job(directory);
  const fs::path rpeg_run = fs::path(RPEG_BINARY_DIR) / "bin/rpeg-run";
  write_file_atomic(directory / "mpirun.sh",
                    mpirun_script(load_job(run_yaml), {run_yaml, rpeg_run}));
  const CommandResult result = run_command(fmt::format(
      "export ASAN_OPTIONS=detect_leaks=0; cd {}; bash mpirun.sh --quiet & "
      "while [ ! -s {}/metrics/metrics.jsonl ]; do sleep 0.1; done; kill -TERM $!; wait $!",
      directory.string(),
      directory.string()));
  EXPECT_EQ(result.code, 75) << result.output;
  EXPECT_THAT(result.output, HasSubstr("stopped by a signal"));
  EXPECT_TRUE(fs::exists(directory / "model/actor/model.safetensors"));
}

}  // namespace
}  // namespace rpeg
