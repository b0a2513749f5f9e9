// Searches on configurations that nobody would write: valid random ones, absurd sizes, and mutated
// files. By default a few hundred; RPEG_FUZZ=10000 in the slow test.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "rpeg/base/error.h"
#include "rpeg/search/search.h"
#include "support/fuzz.h"
#include "support/random_config.h"

namespace rpeg {
namespace {

bool is_sound(double value) { return std::isfinite(value) && value > 0.0; }

enum class Outcome { kPlan, kInfeasible, kRefused };

/// Searches a little: a plan that holds every promise, or an error that says why there is none.
Outcome search_a_little(const WorkloadConfig& config, const HardwareProfile& profile) {
  SearchOptions options;
  options.evaluations = 60;
  options.threads = 1;
  options.top = 2;
  try {
    const SearchResult result = search_plan(config, profile, options);
    for (const Evaluation& plan : result.top) {
      EXPECT_TRUE(plan.fits());
      EXPECT_LE(plan.priced.peak_bytes, profile.memory_per_gpu);
      EXPECT_TRUE(is_sound(plan.metrics.iteration_time_s));
      EXPECT_TRUE(is_sound(plan.metrics.tokens_per_s));
      EXPECT_TRUE(is_sound(plan.metrics.gpu_utilization));
      EXPECT_LE(plan.metrics.gpu_utilization, 1.0 + 1e-6);
      const Graph graph = build_graph(config.policy, plan.plan.structure);
      const auto violations = find_violations(plan.plan, graph, config);
      EXPECT_TRUE(violations.empty()) << violations.front().message;
      EXPECT_LE(result.bound.period_s, plan.steady.period_s * (1 + 1e-9) + 1e-8)
          << result.bound.reason;
    }
    EXPECT_TRUE(std::isfinite(result.bound.period_s) && result.bound.period_s >= 0.0);
    return Outcome::kPlan;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInfeasible) << error.message();
    EXPECT_FALSE(error.message().empty());
    return Outcome::kInfeasible;
  }
}

TEST(Fuzz, RandomConfigurationsGiveAPlanThatFitsOrAReason) {
  Rng rng(2026);
  const HardwareProfile h100 = load_hardware_profile("builtin:h100-sxm");
  int plans = 0;
  const int count = test::fuzz_count() / 2;
  for (int i = 0; i < count; ++i) {
    WorkloadConfig config = random_workload_config(rng);
    config.optimizer.chains = 2;
    HardwareProfile profile = h100;
    profile.memory_per_gpu *= std::exp(4.0 * (rng.uniform() - 0.5));
    SCOPED_TRACE("configuration " + std::to_string(i));
    if (search_a_little(config, profile) == Outcome::kPlan) ++plans;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(plans, count / 10);
}

/// Writes and reads back first: the loader says what is allowed.
TEST(Fuzz, ExtremeSizesAreRefusedOrGiveAPlanThatFits) {
  Rng rng(77);
  const HardwareProfile h100 = load_hardware_profile("builtin:h100-sxm");
  int allowed = 0;
  const int count =
      std::max(1, test::fuzz_count() / 200);  // each takes as long as dozens of the others
  for (int i = 0; i < count; ++i) {
    YamlWriter writer;
    write_workload_inputs(writer, extreme_workload_config(rng));
    SCOPED_TRACE(writer.text());
    WorkloadConfig config;
    try {
      config = parse_workload_config(writer.text(), "fuzz.yaml");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.message();
      continue;
    }
    ++allowed;
    config.optimizer.chains = 2;
    HardwareProfile profile = h100;
    // So that models of every size fit somewhere.
    profile.memory_per_gpu *= std::exp(20.0 * rng.uniform());
    search_a_little(config, profile);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(allowed, count / 2);
}

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Fuzz, MutatedFilesAreRefusedOrGiveAPlanThatFits) {
  Rng rng(4052);
  const HardwareProfile h100 = load_hardware_profile("builtin:h100-sxm");
  const std::string folder = std::string(RPEG_SOURCE_DIR) + "/configs/workload/";
  std::vector<std::string> texts;
  for (const char* name : {"ppo_7b_32gpu.yaml", "grpo_8b_64gpu.yaml", "dpo_7b_8gpu.yaml"}) {
    texts.push_back(read_text(folder + name));
    ASSERT_FALSE(texts.back().empty()) << name;
  }
  int refused = 0;
  int plans = 0;
  const int count = test::fuzz_count() / 2;
  for (int i = 0; i < count; ++i) {
    const std::string text = test::mutated(texts[static_cast<std::size_t>(i) % texts.size()], rng);
    SCOPED_TRACE(text);
    WorkloadConfig config;
    try {
      config = parse_workload_config(text, "fuzz.yaml");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.message();
      ++refused;
      continue;
    }
    config.optimizer.chains = std::min<std::int64_t>(config.optimizer.chains, 2);
    if (search_a_little(config, h100) == Outcome::kPlan) ++plans;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(refused, count / 20);
  EXPECT_GT(plans, count / 20);
}

}  // namespace
}  // namespace rpeg
