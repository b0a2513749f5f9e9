// The four tools in a row, as a user starts them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "rpeg/base/file.h"
#include "rpeg/hf/safetensors.h"
#include "support/command.h"
#include "support/mpi_environment.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kBin = std::string(RPEG_BINARY_DIR) + "/bin/";

/// Runs a command that must succeed; returns what it printed.
std::string succeed(const std::string& command, int limit_s = 100) {
  const CommandResult result = run_command(command, limit_s);
  EXPECT_EQ(result.code, 0) << command << "\n" << result.output;
  return result.output;
}

std::size_t line_count(const fs::path& file) {
  const std::string text = read_file(file);
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Loop, CalibratesPlansCompilesAndTrains) {
  const fs::path out = test::test_directory();
  const std::string demo = std::string(RPEG_SOURCE_DIR) + "/configs/demo/copy";
  const std::string path = out.string();
  succeed(std::string(kMpiEnvironment) + RPEG_MPIEXEC + " -np 2 " + kBin +
          "rpeg-calibrate --quick --config " + demo + "/workload.yaml --output " + path +
          "/hw.yaml");
  const std::string report =
      succeed(kBin + "rpeg-optimize --hw " + path + "/hw.yaml --config " + demo +
              "/workload.yaml --evals 500 --opt-plan " + path + "/plan.yaml");
  EXPECT_THAT(report, HasSubstr("Throughput (tokens/s)"));
  succeed(kBin + "rpeg-jobplan --config " + demo + "/job.yaml --plan " + path +
          "/plan.yaml --out-dir " + path + "/job --emit-sbatch");
  const std::string summary = succeed(path + "/job/mpirun.sh --iterations 5");
  EXPECT_THAT(summary, HasSubstr("predicted"));
  EXPECT_EQ(line_count(out / "job/metrics/metrics.jsonl"), 5U);
  // Two layers of nine tensors, the embedding, the last norm and the head.
  EXPECT_EQ(read_safetensors_headers(out / "job/model/actor").size(), 2U * 9U + 3U);
  EXPECT_TRUE(fs::exists(out / "job/submit.sbatch"));
}

/// Real tokenisation, long prompts and a pretrained model; needs data that the project does not
/// ship.
TEST(Loop, RunsGsm8kPromptsThroughAPretrainedModel) {
  const char* data = std::getenv("RPEG_TEST_DATA");
  if (data == nullptr) {
    GTEST_SKIP() << "set RPEG_TEST_DATA to a folder with stories260k/ and datasets/";
  }
  const fs::path out = test::test_directory();
  const std::string path = out.string();
  std::ofstream(out / "workload.yaml")
      << "hardware: {racks: 1, nodes_per_rack: 1, gpus_per_node: 2}\n"
         "models:\n  actor: {hf_config: "
      << data
      << "/stories260k/config.json}\n"
         "workload: {batch_size: 8, samples_per_prompt: 2, context_length: 384, "
         "generation_length: 64}\n"
         "policy: {algorithm: grpo, reward: verifier}\n"
         "optimizer: {dtype: fp32, max_tp: 1, max_pp: 1, recompute: none, "
         "staleness_candidates: {actor: [0], critic: [0]}}\n"
         "seed: 1\n";
  std::ofstream(out / "job.yaml")
      << "schema: rpeg-job/1\nplan: plan.yaml\nmodels:\n  actor: {path: " << data
      << "/stories260k}\n"
         "data: {prompts: "
      << data
      << "/datasets/gsm8k_train_500.jsonl, template: \"{prompt}\\n\", max_prompt_tokens: 384}\n"
         "reward: {verifier: gsm8k}\n"
         "train: {iterations: 3, learning_rate: {actor: 1.0e-6}}\n"
         "runtime: {metrics: {dir: metrics}, rollouts: rollouts.jsonl}\n";
  succeed(kBin + "rpeg-optimize --hw builtin:h100-sxm --config " + path +
          "/workload.yaml --evals 200 --opt-plan " + path + "/plan.yaml");
  succeed(kBin + "rpeg-jobplan --config " + path + "/job.yaml --out-dir " + path + "/job");
  succeed(path + "/job/mpirun.sh");
  EXPECT_EQ(line_count(out / "job/metrics/metrics.jsonl"), 3U);
  EXPECT_EQ(line_count(out / "job/rollouts.jsonl"), 3U * 16U);
}

}  // namespace
}  // namespace rpeg
