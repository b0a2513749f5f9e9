// The flags of rpeg-optimize beyond a plain search, on a job small enough to search in
// milliseconds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "rpeg/base/file.h"
#include "rpeg/plan/plan_file.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

const std::string kWorkload = R"(hardware: {racks: 1, nodes_per_rack: 2, gpus_per_node: 2}
models:
  actor: {layers: 4, hidden_dim: 1024, ffn_dim: 2816, vocab_size: 32000, head_dim: 64}
  critic: {layers: 4, hidden_dim: 1024, ffn_dim: 2816, vocab_size: 32000, head_dim: 64}
  reward: {layers: 4, hidden_dim: 1024, ffn_dim: 2816, vocab_size: 32000, head_dim: 64}
workload:
  batch_size: 16
  context_length: 64
  generation_length: 128
  gen_quantiles: [[0.5, 32], [1.0, 128]]
policy: {algorithm: ppo}
seed: 7
)";

struct Outcome {
  int exit_code = -1;
  std::string output;
  std::string errors;
};

class Flags : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = test::test_directory();
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    write_file_atomic(directory_ / "workload.yaml", kWorkload);
  }
  void TearDown() override { fs::remove_all(directory_); }

  Outcome run(const std::string& flags) const {
    const std::string command = "cd " + directory_.string() + " && " + RPEG_BINARY_DIR +
                                "/bin/rpeg-optimize --quiet --hw builtin:h100-sxm " + flags +
                                " > out 2> err";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            read_file(directory_ / "out"),
            read_file(directory_ / "err")};
  }
  /// A short search of the job; must succeed.
  Outcome search(const std::string& flags) const {
    const Outcome outcome = run("--config workload.yaml --evals 2000 " + flags);
    EXPECT_EQ(outcome.exit_code, 0) << flags << '\n' << outcome.errors;
    return outcome;
  }
  void expect_refusal(const std::string& flags, const std::string& message) const {
    const Outcome outcome = run(flags);
    EXPECT_EQ(outcome.exit_code, 2) << flags;
    EXPECT_THAT(outcome.errors, HasSubstr(message)) << flags;
    EXPECT_EQ(outcome.output, "") << flags;
  }
  void replace_in(const std::string& file, const std::string& from, const std::string& to) const {
    std::string text = read_file(directory_ / file);
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_file_atomic(directory_ / file, text.replace(at, from.size(), to));
  }

  fs::path directory_;
};

TEST_F(Flags, EvaluateTakesTheNameOfAPlan) {
  const Outcome outcome = run("--config workload.yaml --evaluate greedy --explain concurrent");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, ContainsRegex("Makespan \\(s\\) +[0-9]"));
  EXPECT_THAT(outcome.output, HasSubstr("Against concurrent"));
  expect_refusal("--evaluate greedy", "--evaluate greedy needs --config");
  expect_refusal("--evaluate nowhere.yaml", "nowhere.yaml");
}

TEST_F(Flags, EvaluateOfAFileTakesNoOtherInputs) {
  search("--opt-plan plan.yaml");
  expect_refusal("--config workload.yaml --evaluate plan.yaml", "excludes --config and --lengths");
}

TEST_F(Flags, ExplainGivesReasonsAndDifferences) {
  const Outcome alone = search("--explain --opt-plan plan.yaml");
  for (const char* part : {"Where each vertex spends its time",
                           "What sets the pace",
                           "Memory of the fullest GPU",
                           "What it resembles"}) {
    EXPECT_THAT(alone.output, HasSubstr(part));
  }
  EXPECT_THAT(alone.output, Not(HasSubstr("Against")));
  EXPECT_THAT(search("--explain greedy").output, HasSubstr("Against greedy"));
  const Outcome same = run("--evaluate plan.yaml --explain plan.yaml");
  EXPECT_EQ(same.exit_code, 0) << same.errors;
  EXPECT_THAT(same.output, HasSubstr("It is the same plan."));
  expect_refusal("--config workload.yaml --evals 10 --explain nowhere",
                 "`nowhere` is neither a file nor the name of a plan; names are greedy");
}

TEST_F(Flags, ExplainNamesTheSmallestChangeOfAPlanThatDoesNotFit) {
  search("--opt-plan plan.yaml");
  // The same plan on models two hundred times as deep.
  for (int model = 0; model < 3; ++model) replace_in("plan.yaml", "layers: 4", "layers: 800");
  const Outcome plain = run("--evaluate plan.yaml");
  EXPECT_EQ(plain.exit_code, 3);
  EXPECT_THAT(plain.errors, HasSubstr("--explain names the smallest change that fits"));
  const Outcome outcome = run("--evaluate plan.yaml --explain");
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.output, HasSubstr("Why it does not fit"));
  EXPECT_THAT(outcome.output, ContainsRegex("GPU.*GB"));
  EXPECT_THAT(outcome.output,
              testing::AnyOf(HasSubstr("The smallest change that fits: "),
                             HasSubstr("No change of a single decision")));
}

TEST_F(Flags, StartsFromAPlan) {
  search("--opt-plan plan.yaml");
  const std::string flags = "--config workload.yaml --evals 100 --opt-plan next.yaml --start ";
  EXPECT_EQ(run(flags + "plan.yaml").exit_code, 0);
  // A search does not end with less than it started from.
  EXPECT_LE(load_plan_file(directory_ / "next.yaml").predicted.iteration_time_s,
            load_plan_file(directory_ / "plan.yaml").predicted.iteration_time_s);
  EXPECT_EQ(run(flags + "concurrent").exit_code, 0);
  expect_refusal("--config workload.yaml --start nowhere", "`nowhere` is neither a file");
}

TEST_F(Flags, AStartMustSuitTheConfiguration) {
  search("--opt-plan plan.yaml");
  const std::string start = "--config workload.yaml --evals 10 --start plan.yaml";
  replace_in("workload.yaml", "algorithm: ppo", "algorithm: ppo, kl_reference: false");
  expect_refusal(start, "it is of a job with g_pi, i_R, i_V, i_ref, t_V, t_pi, this one has g_pi");
  write_file_atomic(directory_ / "workload.yaml", kWorkload);
  replace_in("workload.yaml", "batch_size: 16", "batch_size: 1");
  replace_in("workload.yaml", "nodes_per_rack: 2", "nodes_per_rack: 1");
  expect_refusal(start, "the plan does not suit the configuration: ");
}

TEST_F(Flags, PinsKeepWhatTheyName) {
  search("--opt-plan plan.yaml");
  const Outcome pinned =
      search("--start plan.yaml --pin t_pi --pin g_pi=1,1,2/m1 --opt-plan p.yaml");
  ASSERT_EQ(pinned.exit_code, 0) << pinned.errors;
  const Plan start = load_plan_file(directory_ / "plan.yaml").plan;
  const PlanFile file = load_plan_file(directory_ / "p.yaml");
  EXPECT_EQ(file.plan.vertices.back(), start.vertices.back());  // t_pi
  EXPECT_EQ(file.plan.vertices.front().parallelism, (Parallelism{1, 1, 2}));
  EXPECT_EQ(file.plan.vertices.front().micro_batches, 1);
}

TEST_F(Flags, BadPinsAreRefused) {
  const std::string flags = "--config workload.yaml --evals 10 ";
  expect_refusal(flags + "--pin t_pi", "--pin t_pi: a vertex without a decision keeps that of");
  expect_refusal(flags + "--pin t_pi=1,2", "pin `t_pi=1,2`");
  expect_refusal(flags + "--start greedy --pin t_X",
                 "--pin t_X: the plan of --start has no such vertex; it has g_pi, i_R");
}

TEST_F(Flags, TopListsAndSavesDistinctPlans) {
  const Outcome outcome = search("--top 3 --opt-plan best.yaml");
  EXPECT_THAT(outcome.output, HasSubstr("The best 3 plans"));
  EXPECT_THAT(outcome.output, ContainsRegex("\n +3 +[0-9.]+ +\\+[0-9.]+%"));
  const PlanFile best = load_plan_file(directory_ / "best.yaml");
  const PlanFile second = load_plan_file(directory_ / "best.2.yaml");
  const PlanFile third = load_plan_file(directory_ / "best.3.yaml");
  EXPECT_LE(best.predicted.iteration_time_s, second.predicted.iteration_time_s);
  EXPECT_LE(second.predicted.iteration_time_s, third.predicted.iteration_time_s);
  EXPECT_NE(best.plan, second.plan);
  EXPECT_NE(second.plan, third.plan);
  expect_refusal("--config workload.yaml --top 0", "--top: expected a number above 0");
}

TEST_F(Flags, ExhaustiveProvesTheOptimum) {
  replace_in("workload.yaml", "nodes_per_rack: 2", "nodes_per_rack: 1");
  replace_in("workload.yaml", "batch_size: 16", "batch_size: 2");
  replace_in("workload.yaml",
             "algorithm: ppo",
             "algorithm: ppo, reward: verifier, "
             "kl_reference: false");
  const Outcome outcome = run("--config workload.yaml --exhaustive");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("every plan was tried"));
  expect_refusal("--config workload.yaml --exhaustive --evals 10", "excludes");
  expect_refusal("--config workload.yaml --exhaustive --time 10", "excludes");
}

TEST_F(Flags, SweepPrintsOneTable) {
  replace_in("workload.yaml", "gpus_per_node: 2}", "gpus_per_node: 2, gpu_hour_price: 2.0}");
  const Outcome outcome = search("--sweep gpus=4,1,2 --sweep-out sweep.csv");
  EXPECT_THAT(outcome.output, HasSubstr("cost per million tokens"));
  EXPECT_THAT(outcome.output, ContainsRegex("\n +1 +[0-9.]+ +[0-9.e+]+ +100.0% +1 "));
  EXPECT_THAT(outcome.output, ContainsRegex("\n +4 +[0-9.]+ +[0-9.e+]+ +[0-9.]+% +[1-4] "));
  EXPECT_THAT(outcome.output, Not(HasSubstr("Search statistics")));
  const std::string csv = read_file(directory_ / "sweep.csv");
  EXPECT_THAT(csv, testing::StartsWith("gpus,iteration_time_s,"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 4);
}

TEST_F(Flags, SweepRefusesSizesThatTheNodesCannotMake) {
  const std::string flags = "--config workload.yaml --evals 10 --sweep ";
  expect_refusal(flags + "gpus=3", "a cluster of 3 GPUs cannot be made of nodes of 2 GPUs");
  expect_refusal(flags + "8,16", "expected gpus=");
  expect_refusal(flags + "gpus=", "expected numbers of GPUs");
  expect_refusal(flags + "gpus=2,x", "`x` is no number of GPUs");
  expect_refusal(flags + "gpus=2,2", "2 is listed twice");
  expect_refusal(flags + "gpus=2 --opt-plan p.yaml", "excludes");
  expect_refusal("--config workload.yaml --sweep-out a.csv", "--sweep");
}

TEST_F(Flags, SweepSaysWhereNoPlanFits) {
  for (int model = 0; model < 3; ++model) {
    replace_in("workload.yaml", "layers: 4, hidden_dim: 1024", "layers: 400, hidden_dim: 8192");
  }
  const Outcome outcome = run("--config workload.yaml --evals 100 --sweep gpus=1,2");
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.output, ContainsRegex("\n +1 +no plan fits"));
  EXPECT_THAT(outcome.errors, HasSubstr("no plan fits on any of these clusters"));
}

TEST_F(Flags, ExplainNamesTheSmallestChangeWhenNoPlanFits) {
  for (int model = 0; model < 3; ++model) {
    replace_in("workload.yaml", "layers: 4, hidden_dim: 1024", "layers: 400, hidden_dim: 8192");
  }
  const Outcome plain = run("--config workload.yaml --evals 100");
  EXPECT_EQ(plain.exit_code, 3);
  EXPECT_EQ(plain.output, "");
  EXPECT_THAT(plain.errors, HasSubstr("--explain names the smallest change that fits"));
  const Outcome outcome = run("--config workload.yaml --evals 100 --explain");
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.output, HasSubstr("Why it does not fit"));
  EXPECT_THAT(outcome.errors, HasSubstr("no plan that was looked at fits into memory"));
}

TEST_F(Flags, EmptyWordsAndUnknownPlansAreRefused) {
  const std::string flags = "--config workload.yaml --evals 10 ";
  for (const char* flag : {"--start", "--opt-plan", "--base-plan"}) {
    expect_refusal(flags + flag + " ''", std::string(flag) + ": expected a value");
  }
  expect_refusal("--config workload.yaml --sweep ''", "--sweep: expected a value");
  expect_refusal("--config workload.yaml --evaluate ''", "--evaluate: expected a value");
  expect_refusal("--config workload.yaml --evaluate gredy",
                 "`gredy` is neither a file nor the name of a plan; names are greedy");
  expect_refusal(flags + "--opt-plan a.yaml --base-plan ./a.yaml", "have one path");
}

/// Sends SIGINT while a search runs that would take days.
TEST_F(Flags, AStopSavesThePlanAndTellsWhatASweepLeftOut) {
  const auto interrupted = [&](const std::string& flags) {
    // The shell's background jobs ignore SIGINT, so timeout sends it; in the foreground just once.
    const std::string command =
        "cd " + directory_.string() + " && timeout --foreground --preserve-status -s INT 3 " +
        RPEG_BINARY_DIR + "/bin/rpeg-optimize --quiet --hw builtin:h100-sxm " +
        "--config workload.yaml " + flags + " > out 2> err";
    const int status = std::system(command.c_str());
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0) << read_file(directory_ / "err");
  };
  interrupted("--evals 1000000000000 --opt-plan plan.yaml");
  EXPECT_THAT(read_file(directory_ / "out"), HasSubstr("stopped on request"));
  EXPECT_NO_THROW(load_plan_file(directory_ / "plan.yaml"));
  interrupted("--evals 1000000000000 --sweep gpus=2,4 --sweep-out sweep.csv");
  EXPECT_THAT(read_file(directory_ / "out"), ContainsRegex("\n +2 +[0-9.]+"));
  EXPECT_THAT(read_file(directory_ / "err"),
              HasSubstr("the search for 2 GPUs was cut short, 1 of 2 sizes were not searched"));
  EXPECT_TRUE(fs::exists(directory_ / "sweep.csv"));
}

TEST_F(Flags, ObjectiveOverridesTheFile) {
  replace_in("workload.yaml", "gpus_per_node: 2}", "gpus_per_node: 2, gpu_hour_price: 2.0}");
  search("--objective cost --opt-plan plan.yaml");
  EXPECT_EQ(load_plan_file(directory_ / "plan.yaml").inputs.optimizer.objective, Objective::kCost);
  expect_refusal("--config workload.yaml --objective speed", "speed");
}

TEST_F(Flags, ThreadsDoNotChangeThePlan) {
  const auto content = [&](const std::string& flags) {
    search(flags + " --opt-plan plan.yaml");
    const std::string text = read_file(directory_ / "plan.yaml");
    return text.substr(0, text.find("\nprovenance:"));
  };
  EXPECT_EQ(content("--threads 1"), content("--threads 3"));
  expect_refusal("--config workload.yaml --threads 0", "--threads: expected a number above 0");
}

TEST_F(Flags, CheckedScoresGiveTheSamePlan) {
  const auto content = [&](const std::string& flags) {
    search(flags + " --opt-plan plan.yaml");
    const std::string text = read_file(directory_ / "plan.yaml");
    return text.substr(0, text.find("\nprovenance:"));
  };
  EXPECT_EQ(content("--check-scores"), content(""));
}

/// Factors of every class: the plan that was observed is predicted to take what it took.
TEST_F(Flags, ObservedFactorsScalePredictionsAndTheSearch) {
  search("--opt-plan plan.yaml");
  const double plain_s = load_plan_file(directory_ / "plan.yaml").predicted.iteration_time_s;
  std::string observed =
      "schema: rpeg-observed/1\nunits: si\n"
      "iteration_time: {predicted: 1, measured: 2.5}\nobserved:\n";
  for (const std::string work : {"generate", "infer", "train", "transfer"}) {
    observed += "  " + work + ": {g: {factor: 2.5, samples: 4}}\n";
  }
  write_file_atomic(directory_ / "observed.yaml", observed);
  // Everything is slower by one factor: the search starts from what takes 2.5 times as long.
  search("--observed observed.yaml --check-scores --start plan.yaml --opt-plan again.yaml");
  const PlanFile again = load_plan_file(directory_ / "again.yaml");
  EXPECT_LE(again.predicted.iteration_time_s, 2.5 * plain_s * (1 + 1e-9));
  EXPECT_GT(again.predicted.iteration_time_s, 2.0 * plain_s);
  EXPECT_LE(again.predicted.lower_bound_s, again.predicted.iteration_time_s * (1 + 1e-9));
  EXPECT_NE(run("--evaluate plan.yaml").output,
            run("--observed observed.yaml --evaluate plan.yaml").output);
  expect_refusal("--config workload.yaml --observed absent.yaml", "absent.yaml");
}

TEST_F(Flags, LengthsReplaceTheQuantiles) {
  std::string lines;
  for (int i = 1; i <= 100; ++i) lines += std::to_string(i) + "\n";
  write_file_atomic(directory_ / "lengths.jsonl", lines);
  search("--lengths lengths.jsonl --opt-plan plan.yaml");
  const auto points = load_plan_file(directory_ / "plan.yaml").inputs.workload.gen_quantiles;
  ASSERT_GE(points.size(), 11U);
  EXPECT_EQ(points[0], (LengthQuantile{0.1, 10}));
  EXPECT_EQ(points.back(), (LengthQuantile{1.0, 128}));
  EXPECT_THAT(read_file(directory_ / "plan.yaml"), HasSubstr("path: lengths.jsonl"));
  const std::string flags = "--config workload.yaml --evals 10 --lengths ";
  expect_refusal(flags + "nowhere.jsonl", "nowhere.jsonl");
  write_file_atomic(directory_ / "lengths.jsonl", "5\n{\"text\": \"ab\"}\n");
  expect_refusal(flags + "lengths.jsonl", "lengths.jsonl:2: ");
  write_file_atomic(directory_ / "lengths.jsonl", "129\n");
  expect_refusal(flags + "lengths.jsonl", "more than workload.generation_length = 128");
}

TEST_F(Flags, ReadsBackCutAndSharedPlansWithTheirTasks) {
  replace_in("workload.yaml", "algorithm: ppo", "algorithm: ppo, allow_ac_share: true");
  search("--opt-plan plan.yaml --base-plan base.yaml");
  // Cut and share the greedy plan by hand: every vertex on all four GPUs, dp 4.
  PlanFile file = load_plan_file(directory_ / "base.yaml");
  file.plan.structure = {1, 1, true, 1};
  file.plan.vertices.assign(5, {{4, 1, 1}, 1, {{0, 0}, {0, 1}, {0, 1}}});
  file.schedule.clear();
  file.predicted = {};
  write_file_atomic(directory_ / "cut.yaml", plan_file_text(file, nullptr));
  const Outcome outcome = run("--evaluate cut.yaml --explain greedy");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("ac_share      True"));
  EXPECT_THAT(outcome.output, HasSubstr("cuts          [0.5]"));
  for (const char* task : {"g_pi.1", "g_pi.2", "i_ref.1", "i_ref.2", "t_piV"}) {
    EXPECT_THAT(outcome.output, ContainsRegex("\n  " + std::string(task) + " +[0-9]"));
  }
  EXPECT_THAT(outcome.output, ContainsRegex("-?[0-9.]+% +cuts \\[0.5\\] -> \\[\\]"));
  EXPECT_THAT(outcome.output, HasSubstr("ac_share true -> false"));
  // A search that starts there writes tasks that the reader knows.
  ASSERT_EQ(run("--config workload.yaml --evals 500 --start cut.yaml --opt-plan o.yaml").exit_code,
            0);
  load_plan_file(directory_ / "o.yaml");
}

TEST_F(Flags, HelpNamesThePlans) {
  const Outcome outcome = run("--help");
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* name :
       {"greedy", "concurrent", "colocated-uniform", "split-async", "real-heuristic"}) {
    EXPECT_THAT(outcome.output, HasSubstr(name));
  }
}

}  // namespace
}  // namespace rpeg
