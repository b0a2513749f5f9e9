// Offline DPO on real preference pairs with a pretrained model; the data are not shipped with the
// project.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rpeg/job/job_config.h"
#include "rpeg/plan/plan_file.h"
#include "support/command.h"
#include "support/copy_job.h"
#include "support/layout_job.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

constexpr int kIterations = 30;
/// Of the 300 pairs so many fit into the model's 512 positions, as 192 of prompt and 320 of
/// response. All are in every batch, so each iteration's accuracy is that of the whole set.
constexpr int kPairs = 16;

class Preferences : public testing::Test {
 protected:
  void SetUp() override {
    const char* data = std::getenv("RPEG_TEST_DATA");
    if (data == nullptr) {
      GTEST_SKIP() << "set RPEG_TEST_DATA to a folder with stories260k/ and datasets/";
    }
    directory_ = test::test_directory();
    const std::string root = data;
    std::ofstream(directory_ / "workload.yaml")
        << "hardware: {racks: 1, nodes_per_rack: 1, gpus_per_node: 2}\n"
           "models:\n  actor: {hf_config: "
        << root << "/stories260k/config.json}\n"
        << fmt::format("workload: {{batch_size: {}, context_length: 192, ", kPairs)
        << "generation_length: 320}\n"
           "policy: {algorithm: dpo, dpo_mode: offline}\n"
           "optimizer: {dtype: fp32, recompute: none}\n"
           "seed: 1\n";
    std::ofstream(directory_ / "job.yaml")
        << "schema: rpeg-job/1\nplan: plan.yaml\n"
           "models: {actor: {path: "
        << root << "/stories260k}}\n"
        << "data: {prompts: " << root << "/datasets/dpo_en_300.jsonl, prompt_field: messages, "
        << "over_long: drop, max_prompt_tokens: 192, max_response_tokens: 320}\n"
        << fmt::format("train: {{iterations: {}, learning_rate: {{actor: 3.0e-4}}}}\n", kIterations)
        << "runtime: {metrics: {dir: metrics}, trace: {dir: trace}}\n";
    succeed(tool("rpeg-optimize") + " --hw builtin:h100-sxm --config " + file("workload.yaml") +
            " --evals 200 --opt-plan " + file("plan.yaml"));
  }

  static std::string tool(const std::string& name) {
    return std::string(RPEG_BINARY_DIR) + "/bin/" + name;
  }
  std::string file(const std::string& name) const { return (directory_ / name).string(); }

  /// Runs a command that must succeed.
  static void succeed(const std::string& command) {
    const CommandResult result = run_command(command, 110);
    ASSERT_EQ(result.code, 0) << command << "\n" << result.output;
  }

  fs::path directory_;
};

/// One number of every iteration.
std::vector<double> metric(const fs::path& metrics, const std::string& name) {
  std::vector<double> values;
  std::ifstream in(metrics);
  for (std::string line; std::getline(in, line);) {
    values.push_back(nlohmann::json::parse(line).at(name).get<double>());
  }
  return values;
}

double mean(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  double sum = 0.0;
  for (std::size_t i = begin; i < end; ++i) {
    sum += values[i];
  }
  return sum / static_cast<double>(end - begin);
}

TEST_F(Preferences, AreLearned) {
  succeed(tool("rpeg-jobplan") + " --config " + file("job.yaml") + " --out-dir " + file("job"));
  succeed(file("job/mpirun.sh"));
  succeed(tool("rpeg-run") + " --check-trace " + file("job/trace") + " --config " +
          file("job/run.yaml"));
  const fs::path metrics = directory_ / "job/metrics/metrics.jsonl";
  const std::vector<double> losses = metric(metrics, "policy_loss");
  const std::vector<double> margins = metric(metrics, "dpo_margin");
  const std::vector<double> accuracies = metric(metrics, "dpo_accuracy");
  ASSERT_EQ(losses.size(), static_cast<std::size_t>(kIterations));
  EXPECT_EQ(metric(metrics, "dpo_pairs").back(), kPairs);
  EXPECT_NEAR(losses.front(), std::log(2.0), 1e-4);
  EXPECT_NEAR(margins.front(), 0.0, 1e-4);
  EXPECT_LT(mean(margins, 0, 10), mean(margins, 10, 20));
  EXPECT_LT(mean(margins, 10, 20), mean(margins, 20, 30));
  EXPECT_GT(margins.back(), 5.0);
  EXPECT_GT(accuracies.back(), 0.9);
  EXPECT_LT(losses.back(), 0.1);
}

TEST_F(Preferences, FirstLossesDoNotDependOnTheLayout) {
  std::vector<std::string> warnings;
  JobConfig config = load_job_config(directory_ / "job.yaml", warnings);
  config.train.iterations = 3;
  const PlanFile plan = load_plan_file(directory_ / "plan.yaml");
  std::vector<IterationMetrics> alone;
  for (const char* layout :
       {"r0 n[0-0] g[0-0] dp1", "r0 n[0-0] g[0-1] dp2", "r0 n[0-0] g[0-1] dp1 tp2"}) {
    SCOPED_TRACE(layout);
    PlanFile changed = plan;
    for (VertexPlan& vertex : changed.plan.vertices) {
      vertex = parse_layout(layout);
    }
    const Job job = compile_job(config, scheduled(changed), fresh_directory("layout"));
    const RunSummary summary = run_on_threads(job);
    ASSERT_EQ(summary.iterations.size(), 3U);
    EXPECT_NEAR(summary.iterations[0].policy_loss, std::log(2.0), 1e-4);
    if (alone.empty()) {
      alone = summary.iterations;
    }
    for (std::size_t k = 0; k < 3; ++k) {
      EXPECT_NEAR(summary.iterations[k].policy_loss, alone[k].policy_loss, 1e-4);
      EXPECT_NEAR(summary.iterations[k].dpo_margin, alone[k].dpo_margin, 1e-4);
      EXPECT_NEAR(
          summary.iterations[k].gradient_norm_actor / alone[k].gradient_norm_actor, 1.0, 1e-4);
    }
  }
}

}  // namespace
}  // namespace rpeg
