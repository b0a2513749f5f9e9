// The same job on 1, 2 and 4 real processes: same samples, same losses.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "rpeg/base/file.h"
#include "runtime/replay.h"
#include "support/command.h"
#include "support/copy_job.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

struct Layout {
  std::string name;
  int ranks = 1;
  std::map<std::string, std::string> placements;
  std::string elsewhere;
  std::map<std::string, Parallelism> layouts = {};
};

const Layout kOne = {"one", 1, {}, "r0 n[0-0] g[0-0]"};
const Layout kTwo = {"two", 2, {}, "r0 n[0-0] g[0-1]"};
const Layout kFour = {
    "four", 4, {{"g_pi", "r0 n[0-0] g[0-1]"}, {"t_pi", "r0 n[0-0] g[2-3]"}}, "r0 n[0-0] g[1-2]"};

/// A split of its own for every vertex.
const Layout kMixed = {"mixed",
                       4,
                       {},
                       "r0 n[0-0] g[0-3]",
                       {{"g_pi", {.dp = 2, .pp = 1, .tp = 2}},
                        {"i_ref", {.dp = 1, .pp = 2, .tp = 2}},
                        {"i_V", {.dp = 2, .pp = 2, .tp = 1}},
                        {"t_V", {.dp = 1, .pp = 1, .tp = 4}},
                        {"t_pi", {.dp = 2, .pp = 2, .tp = 1}}}};

/// Runs three iterations and returns the output folder.
fs::path run_layout(Algorithm algorithm, const Layout& layout, const fs::path& replay) {
  const fs::path directory = fresh_directory(std::string("mpi_") + to_string(algorithm) + "_" +
                                             layout.name + (replay.empty() ? "" : "_r"));
  CopyJob options;
  options.algorithm = algorithm;
  options.iterations = 3;
  options.learning_rate = 1e-3;
  options.minibatches = 2;
  options.placements = layout.placements;
  options.elsewhere = layout.elsewhere;
  options.layouts = layout.layouts;
  const fs::path run_yaml = write_run_yaml(compile_copy_job(options, directory), directory);
  const CommandResult result = run_command(rpeg_run_command(
      layout.ranks, run_yaml, replay.empty() ? "--quiet" : "--quiet --replay " + replay.string()));
  EXPECT_EQ(result.code, 0) << result.output;
  return directory;
}

std::vector<nlohmann::json> metrics_of(const fs::path& directory) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(read_file(directory / "metrics/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

void expect_same_samples(const fs::path& a, const fs::path& b) {
  const RolloutTable first = load_rollouts(a / "rollouts.jsonl");
  const RolloutTable second = load_rollouts(b / "rollouts.jsonl");
  ASSERT_EQ(first.size(), 3U * 8 * 4);
  for (const auto& [key, record] : first) {
    if (record.iteration == 0) {  // later weights differ by rounding
      EXPECT_EQ(record.rollout.tokens, second.at(key).rollout.tokens);
    }
  }
}

void expect_same_losses(const fs::path& a, const fs::path& b) {
  const auto first = metrics_of(a);
  const auto second = metrics_of(b);
  ASSERT_EQ(first.size(), 3U);
  ASSERT_EQ(second.size(), 3U);
  for (std::size_t k = 0; k < first.size(); ++k) {
    for (const char* key : {"policy_loss", "value_loss", "gradient_norm_actor", "kl_reference"}) {
      if (!first[k].at(key).is_null()) {
        EXPECT_NEAR(first[k].at(key).get<double>(), second[k].at(key).get<double>(), 1e-5)
            << key << " of iteration " << k;
      }
    }
  }
}

class Layouts : public testing::TestWithParam<Algorithm> {};

INSTANTIATE_TEST_SUITE_P(Run,
                         Layouts,
                         testing::Values(Algorithm::kGrpo, Algorithm::kPpo),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

TEST_P(Layouts, SampleAndLearnTheSame) {
  const fs::path one = run_layout(GetParam(), kOne, "");
  const fs::path recorded = one / "rollouts.jsonl";
  for (const Layout& layout : {kTwo, kFour, kMixed}) {
    SCOPED_TRACE(layout.name);
    expect_same_samples(one, run_layout(GetParam(), layout, ""));
    expect_same_losses(one, run_layout(GetParam(), layout, recorded));
  }
}

TEST(Overlap, StaleCutAndShiftedRunsAreAsCompiled) {
  CopyJob options;
  options.algorithm = Algorithm::kPpo;
  options.tau = 1;
  options.is_cut = true;
  options.generation_length = 6;
  options.iterations = 4;
  options.elsewhere = "r0 n[0-0] g[2-3]";
  options.placements = {{"g_pi", "r0 n[0-0] g[0-1]"}};
  options.layouts = {{"g_pi", {.dp = 1, .pp = 1, .tp = 2}}, {"t_pi", {.dp = 1, .pp = 2, .tp = 1}}};
  const fs::path directory = fresh_directory("mpi_overlap");
  const fs::path run_yaml = write_run_yaml(compile_copy_job(options, directory), directory);
  const CommandResult run = run_command(rpeg_run_command(4, run_yaml, "--quiet"));
  ASSERT_EQ(run.code, 0) << run.output;
  EXPECT_EQ(metrics_of(directory).size(), 4U);
  const CommandResult checked =
      run_command(rpeg_run_command(0, run_yaml, "--check-trace " + (directory / "trace").string()));
  EXPECT_EQ(checked.code, 0) << checked.output;
}

}  // namespace
}  // namespace rpeg
