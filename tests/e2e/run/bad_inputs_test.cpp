// Ten bad inputs, through the executables as a user starts them. The exit code and the message must
// be those that docs/errors.md shows, told once however many ranks there are.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rpeg/base/file.h"
#include "support/command.h"
#include "support/copy_job.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A copy of the copy demonstration, small, in a folder of its own, where commands run.
class BadInputs : public testing::Test {
 protected:
  BadInputs() : folder_(fs::canonical(fresh_directory("bad"))) {
    fs::copy(fs::path(RPEG_SOURCE_DIR) / "configs/demo/copy",
             folder_,
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }

  /// Replaces `from`, which must be there, in a file of the folder.
  void edit(const std::string& file, const std::string& from, const std::string& to) {
    std::string text = read_file(folder_ / file);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_file_atomic(folder_ / file, text.replace(at, from.size(), to));
  }

  CommandResult run(const std::string& command) {
    return run_command(fmt::format(
        "cd {} && export PATH={}/bin:$PATH && {}", folder_.string(), RPEG_BINARY_DIR, command));
  }

  CommandResult optimize() {
    return run(
        "rpeg-optimize --hw builtin:h100-sxm --config workload.yaml --evals 100 "
        "--opt-plan plan.yaml");
  }

  CommandResult compile(const std::string& flags = "--out-dir job") {
    return run("rpeg-jobplan --config job.yaml --plan plan.yaml " + flags);
  }

  void plan_and_compile() {
    const CommandResult plan = optimize();
    ASSERT_EQ(plan.code, 0) << plan.output;
    const CommandResult job = compile();
    ASSERT_EQ(job.code, 0) << job.output;
  }

  /// Leaves a trained model in job/model/actor.
  void train_a_model() {
    plan_and_compile();
    const CommandResult training = run("job/mpirun.sh --quiet --iterations 1");
    ASSERT_EQ(training.code, 0) << training.output;
  }

  /// The outcome is an error with this code, whose message names `part` and which the table in
  /// docs/errors.md shows in full, as told by `teller`.
  void expect_error(const CommandResult& result,
                    int code,
                    const std::string& teller,
                    const std::string& part) {
    EXPECT_EQ(result.code, code) << result.output;
    const std::string start = teller + ": error: ";
    const std::size_t at = result.output.find(start);
    ASSERT_NE(at, std::string::npos) << result.output;
    EXPECT_EQ(result.output.find("error: ", at + start.size()), std::string::npos) << result.output;
    std::string message = result.output.substr(at, result.output.find('\n', at) - at);
    EXPECT_THAT(message, HasSubstr(part));
    for (std::size_t found = 0; (found = message.find(folder_.string())) != std::string::npos;) {
      message.replace(found, folder_.string().size(), "$PWD");
    }
    EXPECT_THAT(read_file(fs::path(RPEG_SOURCE_DIR) / "docs/errors.md"),
                HasSubstr(fmt::format("| ``{}`` | {} |\n", message, code)));
  }

  fs::path folder_;
};

TEST_F(BadInputs, MissingKey) {
  edit("workload.yaml", "  batch_size: 64 ", "  # ");
  expect_error(
      optimize(), 2, "rpeg-optimize", "workload.yaml:13:3: `workload.batch_size`: required key");
}

TEST_F(BadInputs, UnknownKeyWithASuggestion) {
  edit("workload.yaml", "kl_reference", "kl_refrence");
  expect_error(optimize(), 2, "rpeg-optimize", "did you mean `kl_reference`?");
}

TEST_F(BadInputs, WrongType) {
  edit("workload.yaml", "batch_size: 64", "batch_size: many");
  expect_error(optimize(), 2, "rpeg-optimize", "workload.yaml:12:15: `workload.batch_size`");
}

TEST_F(BadInputs, NegativeSize) {
  edit("workload.yaml", "samples_per_prompt: 8", "samples_per_prompt: -8");
  expect_error(
      optimize(), 2, "rpeg-optimize", "workload.yaml:13:23: `workload.samples_per_prompt`");
}

TEST_F(BadInputs, QuantilesNotIncreasing) {
  edit("workload.yaml", "policy:", "  gen_quantiles: [[0.5, 1], [0.4, 2], [1.0, 3]]\n\npolicy:");
  expect_error(optimize(), 2, "rpeg-optimize", "`workload.gen_quantiles`: point 2 [0.4, 2]");
}

TEST_F(BadInputs, VocabulariesDisagree) {
  edit("model/config.json", "\"vocab_size\": 12", "\"vocab_size\": 10");
  ASSERT_EQ(optimize().code, 0);
  expect_error(compile(), 2, "rpeg-jobplan", "12");
}

TEST_F(BadInputs, TruncatedSafetensors) {
  train_a_model();
  edit("job.yaml",
       "actor: {init: random, config: model, seed: 1}",
       "actor: {path: job/model/actor}");
  fs::resize_file(folder_ / "job/model/actor/model.safetensors", 100'000);
  expect_error(compile(), 2, "rpeg-jobplan", "truncated");
}

TEST_F(BadInputs, MoreRanksThanMpirunStarted) {
  plan_and_compile();
  expect_error(run(rpeg_run_command(1, "job/run.yaml")), 2, "rpeg-run", "start with mpirun -np 2");
}

TEST_F(BadInputs, OutputFolderBelowARegularFile) {
  ASSERT_EQ(optimize().code, 0);
  expect_error(
      compile("--out-dir plan.yaml/job"), 2, "rpeg-jobplan", "plan.yaml is a regular file");
}

// The weights of the reference end with 0xffffffff: not a number.
TEST_F(BadInputs, LossIsNotFinite) {
  train_a_model();
  std::string weights = read_file(folder_ / "job/model/actor/model.safetensors");
  weights.replace(weights.size() - 1000, 1000, 1000, '\xff');
  write_file_atomic(folder_ / "job/model/actor/model.safetensors", weights);
  edit("job.yaml", "\ndata:", "\n  reference: {path: job/model/actor}\ndata:");
  ASSERT_EQ(compile("--out-dir job2").code, 0);
  expect_error(run(rpeg_run_command(2, "job2/run.yaml", "--quiet")),
               4,
               "rpeg-run: rank 0",
               "t_pi, iteration 0, mini-batch 0: loss is nan");
}

}  // namespace
}  // namespace rpeg
