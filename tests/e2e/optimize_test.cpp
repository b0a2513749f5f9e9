// rpeg-optimize as a user runs it, on the published sample (tests/golden/data/published).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "rpeg/base/file.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::HasSubstr;

const std::string kSample = std::string(RPEG_SOURCE_DIR) + "/tests/golden/data/published";
const std::string kInputs = " --hw " + kSample + "/hw.yaml --config " + kSample + "/workload.yaml";

struct Outcome {
  int exit_code = -1;
  std::string output;  ///< stdout
  std::string errors;  ///< stderr
};

/// Runs rpeg-optimize in a directory of its own.
class Optimize : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = test::test_directory();
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  Outcome run(const std::string& flags) const {
    const std::string command = "cd " + directory_.string() + " && " + RPEG_BINARY_DIR +
                                "/bin/rpeg-optimize" + flags + " > out 2> err";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            read_file(directory_ / "out"),
            read_file(directory_ / "err")};
  }

  fs::path directory_;
};

std::string without_provenance(const std::string& text) {
  const auto at = text.find("\nprovenance:");
  EXPECT_NE(at, std::string::npos);
  return text.substr(0, at);
}

TEST_F(Optimize, ReportsThePublishedSampleInThePublishedLayout) {
  const Outcome outcome = run(kInputs + " --evals 20000");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  for (const char* part : {"440 TFLOP/s",
                           "220 GB/s",
                           "Search statistics",
                           "wall time",
                           "ac_share      False",
                           "Per-vertex plan (base → optimal):"}) {
    EXPECT_THAT(outcome.output, HasSubstr(part));
  }
  EXPECT_THAT(outcome.output, ContainsRegex("cache +hits=[0-9]+ misses=[0-9]+ \\([0-9.]+%\\)"));
  EXPECT_THAT(outcome.output, ContainsRegex("tau +\\{Pi:[01], V:0\\}"));
  EXPECT_THAT(outcome.output,
              ContainsRegex("Metric +Greedy +Conc. Heuristic +Optimized +Δ \\(vs greedy\\)"));
  for (const char* row : {"Throughput \\(tokens/s\\)",
                          "Makespan \\(s\\)",
                          "Throughput \\(PFLOP/s\\)",
                          "GPU utilization",
                          "Active GPUs"}) {
    EXPECT_THAT(outcome.output, ContainsRegex(std::string(row) + "( +[0-9.e+-]+%?){3}"));
  }
  for (const char* vertex : {"g_pi", "i_R", "i_V", "i_ref", "t_V", "t_pi"}) {
    EXPECT_THAT(outcome.output, ContainsRegex("\n[* ] +" + std::string(vertex) + " +\\("));
  }
  // The sample asks for plots, a log and both plans.
  for (const char* path : {"plans/baseline.yaml",
                           "plans/optimized.yaml",
                           "logs/my_experiment.log",
                           "figures/runs/my_experiment/graph.pdf",
                           "figures/runs/my_experiment/gantt_base.pdf",
                           "figures/runs/my_experiment/gantt_optimized.pdf"}) {
    EXPECT_TRUE(fs::exists(directory_ / path)) << path;
  }
}

TEST_F(Optimize, WritesTheSamePlanTwice) {
  ASSERT_EQ(run(kInputs + " --evals 20000 --opt-plan one.yaml").exit_code, 0);
  ASSERT_EQ(run(kInputs + " --evals 20000 --opt-plan two.yaml").exit_code, 0);
  const std::string one = without_provenance(read_file(directory_ / "one.yaml"));
  const std::string two = without_provenance(read_file(directory_ / "two.yaml"));
  // The name of the plan is an input too.
  const auto inputs = [](const std::string& text) {
    return text.substr(0, text.find("\ninputs:"));
  };
  EXPECT_EQ(inputs(one), inputs(two));
  ASSERT_EQ(run(kInputs + " --evals 20000 --opt-plan one.yaml").exit_code, 0);
  EXPECT_EQ(without_provenance(read_file(directory_ / "one.yaml")), one);
}

TEST_F(Optimize, EvaluatesThePlanThatItWrote) {
  const Outcome search = run(kInputs + " --evals 2000 --opt-plan plan.yaml");
  ASSERT_EQ(search.exit_code, 0) << search.errors;
  const Outcome outcome = run(" --hw " + kSample + "/hw.yaml --evaluate plan.yaml");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  // The breakdown of the optimum is the breakdown of the evaluation, digit by digit.
  const auto breakdown = [](const std::string& text) {
    const auto from = text.find("Where the time goes");
    return text.substr(from, text.find("Critical cycle") - from);
  };
  EXPECT_EQ(breakdown(outcome.output), breakdown(search.output));
}

TEST_F(Optimize, MapsErrorsToExitCodes) {
  EXPECT_EQ(run(" --no-such-flag").exit_code, 2);
  EXPECT_EQ(run(" --hw " + kSample + "/hw.yaml").exit_code, 2);
  EXPECT_EQ(run(kInputs + " --evals 10 --time 1").exit_code, 2);
  EXPECT_EQ(run(" --hw builtin:h100-sxm --evaluate plan.yaml --plots").exit_code, 2);
  EXPECT_EQ(run(kInputs + " --evals 10 --seed 9223372036854775808").exit_code, 2);
  EXPECT_EQ(run(kInputs + " --evals 10 --seed -1").exit_code, 2);
  const Outcome zero = run(kInputs + " --evals 0");
  EXPECT_EQ(zero.exit_code, 2);
  EXPECT_THAT(zero.errors, HasSubstr("--evals: expected a number above 0, found 0"));
  const Outcome missing = run(" --hw nowhere.yaml --config " + kSample + "/workload.yaml");
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.errors, HasSubstr("nowhere.yaml"));
  EXPECT_EQ(run(" --version").exit_code, 0);
  EXPECT_THAT(run(" --help").output, HasSubstr("Examples:"));
}

TEST_F(Optimize, RefusesAnUnwritablePlanBeforeTheSearch) {
  write_file_atomic(directory_ / "taken", "");
  const Outcome outcome = run(kInputs + " --time 600 --opt-plan taken/plan.yaml");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.errors, HasSubstr("taken is a regular file"));
  EXPECT_EQ(outcome.output, "");
}

TEST_F(Optimize, RefusesNumbersThatAreNone) {
  for (const char* flag : {"--evals 99999999999999999999", "--time nan", "--seed -1"}) {
    const Outcome outcome = run(kInputs + " " + flag);
    EXPECT_EQ(outcome.exit_code, 2) << flag;
    EXPECT_THAT(outcome.errors, ContainsRegex("expected a (whole )?number .* found")) << flag;
  }
}

TEST_F(Optimize, RefusesFlagsThatEvaluateWouldIgnore) {
  for (const char* flag : {"--evals 1",
                           "--time 1",
                           "--seed 1",
                           "--opt-plan p",
                           "--plots",
                           "--start greedy",
                           "--pin g_pi=m1",
                           "--top 3",
                           "--exhaustive",
                           "--threads 1",
                           "--objective cost",
                           "--sweep gpus=8"}) {
    const Outcome outcome = run(" --hw " + kSample + "/hw.yaml --evaluate plan.yaml " + flag);
    EXPECT_EQ(outcome.exit_code, 2) << flag;
    EXPECT_THAT(outcome.errors, HasSubstr("excludes")) << flag;
  }
}

TEST_F(Optimize, RefusesOnePathForBothPlansBeforeTheSearch) {
  const Outcome outcome = run(kInputs + " --time 1000 --opt-plan plans/baseline.yaml");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.output, "");
}

TEST_F(Optimize, FailsWhenItsResultCannotBePrinted) {
  const std::string command = "cd " + directory_.string() + " && " + RPEG_BINARY_DIR +
                              "/bin/rpeg-optimize --help > /dev/full 2> err";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 4);
  EXPECT_THAT(read_file(directory_ / "err"), HasSubstr("standard output"));
}

TEST_F(Optimize, ExplainsWhyNothingFits) {
  std::string hardware = read_file(kSample + "/hw.yaml");
  const auto at = hardware.find("memory_per_gpu:");
  ASSERT_NE(at, std::string::npos);
  hardware.replace(at, hardware.find('\n', at) - at, "memory_per_gpu: 2.0e+9");
  write_file_atomic(directory_ / "hw.yaml", hardware);
  const Outcome outcome = run(" --hw hw.yaml --config " + kSample + "/workload.yaml --evals 1000");
  EXPECT_EQ(outcome.exit_code, 3) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("no plan"));
}

}  // namespace
}  // namespace rpeg
