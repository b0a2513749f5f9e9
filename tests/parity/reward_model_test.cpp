// PPO learns what a reward model prefers, wherever the reward model runs and however it is split.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "rpeg/base/file.h"
#include "rpeg/hf/safetensors.h"
#include "rpeg/model/parameters.h"
#include "rpeg/trace/check_trace.h"
#include "runtime/replay.h"
#include "support/copy_job.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;

const fs::path kDemoModel = fs::path(RPEG_SOURCE_DIR) / "configs/demo/copy/model";
constexpr std::int32_t kPlanted = 7;
constexpr std::int64_t kIterations = 40;

/// A random trunk with a planted preference. Token i enters the residual stream as unit vector i,
/// which random layers hardly change, and the head reads component kPlanted of what the last norm
/// scales to length sqrt(hidden): about 1 where the last token is kPlanted, about 0 elsewhere.
void write_reward_model(const fs::path& directory) {
  const ModelSpec spec = load_hf_config(kDemoModel);
  const ParameterLayout layout = build_parameter_layout(spec, Head::kScalar);
  std::vector<float> weights(static_cast<std::size_t>(layout.total));
  initialise_parameters(spec, layout, 11, weights);
  const auto values_of = [&](const std::string& name) {
    for (const ParameterTensor& tensor : layout.tensors) {
      if (tensor.name == name) {
        return std::span(weights).subspan(static_cast<std::size_t>(tensor.offset),
                                          static_cast<std::size_t>(tensor.count));
      }
    }
    throw std::runtime_error("no tensor " + name);
  };
  const auto hidden = static_cast<std::size_t>(spec.hidden_dim);
  const std::span<float> embedding = values_of("model.embed_tokens.weight");
  std::ranges::fill(embedding, 0.0F);
  for (std::size_t token = 0; token * hidden < embedding.size(); ++token) {
    embedding[token * hidden + token] = 1.0F;
  }
  values_of("score.weight")[kPlanted] = 1.0F / std::sqrt(static_cast<float>(hidden));
  save_hf_directory(directory, spec, layout, weights, kDemoModel);
}

struct Learning {
  RunSummary summary;
  RolloutTable rollouts;
};

/// PPO against the planted reward model; `layouts` with their blocks for some vertices.
Learning learn(const std::string& name,
               const std::map<std::string, std::string>& placements,
               const std::map<std::string, Parallelism>& layouts,
               const fs::path& reward_model) {
  CopyJob options;
  options.algorithm = Algorithm::kPpo;
  options.iterations = kIterations;
  options.prompts = 32;
  options.placements = placements;
  options.layouts = layouts;
  options.reward_model = reward_model;
  const Job job = compile_copy_job(options, fresh_directory(name));
  Learning learning;
  learning.summary = run_on_threads(job);
  learning.rollouts = load_rollouts(job.config.runtime.rollouts);
  EXPECT_THAT(check_trace(job, load_trace(job.config.runtime.trace_dir)), IsEmpty());
  return learning;
}

/// The mean reward of iterations [begin, end).
double mean_reward(const RunSummary& summary, std::size_t begin, std::size_t end) {
  double sum = 0.0;
  for (std::size_t k = begin; k < end; ++k) {
    sum += summary.iterations[k].reward_mean;
  }
  return sum / static_cast<double>(end - begin);
}

class RewardModel : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = fresh_directory("planted");
    write_reward_model(model_);
    alone_ = learn("alone", {}, {}, model_);
  }
  static fs::path model_;
  static Learning alone_;
};
fs::path RewardModel::model_;
Learning RewardModel::alone_;

/// Rollouts hold no scores of a reward model; the mean of an iteration must be what its last tokens
/// earn.
TEST_F(RewardModel, ScoresWhatWasPlanted) {
  constexpr std::size_t kResponses = 32U * 4U;
  ASSERT_EQ(alone_.rollouts.size(), static_cast<std::size_t>(kIterations) * kResponses);
  std::map<std::int64_t, double> planted;
  for (const auto& [key, record] : alone_.rollouts) {
    planted[record.iteration] += record.rollout.tokens.back() == kPlanted ? 1.0 / kResponses : 0.0;
  }
  for (const IterationMetrics& metrics : alone_.summary.iterations) {
    EXPECT_NEAR(metrics.reward_mean, planted.at(metrics.iteration), 0.05);
  }
}

TEST_F(RewardModel, PpoLearnsIt) {
  const RunSummary& summary = alone_.summary;
  ASSERT_EQ(summary.iterations.size(), static_cast<std::size_t>(kIterations));
  // Untrained, each of the twelve tokens is as likely as the others.
  EXPECT_NEAR(summary.iterations[0].reward_mean, 1.0 / 12.0, 0.1);
  EXPECT_GT(mean_reward(summary, kIterations - 5, kIterations), 0.9);
  for (std::size_t k = 0; k < summary.iterations.size(); k += 10) {
    RecordProperty(fmt::format("reward_{}", k),
                   fmt::format("{:.3f}", summary.iterations[k].reward_mean));
  }
}

TEST_F(RewardModel, TheSameOnOtherRanksAndSplit) {
  const std::vector<std::pair<std::string, Parallelism>> layouts = {
      {"r0 n[0-0] g[1-1]", {.dp = 1, .pp = 1, .tp = 1}},
      {"r0 n[0-0] g[1-2]", {.dp = 1, .pp = 1, .tp = 2}},
      {"r0 n[0-0] g[1-2]", {.dp = 1, .pp = 2, .tp = 1}},
  };
  for (const auto& [block, split] : layouts) {
    SCOPED_TRACE(fmt::format("{} dp{} pp{} tp{}", block, split.dp, split.pp, split.tp));
    const Learning other = learn("other", {{"i_R", block}}, {{"i_R", split}}, model_);
    ASSERT_EQ(other.rollouts.size(), alone_.rollouts.size());
    for (const auto& [key, record] : other.rollouts) {
      if (record.iteration > 0) {
        continue;
      }
      EXPECT_EQ(record.rollout.tokens, alone_.rollouts.at(key).rollout.tokens);
    }
    for (std::size_t k = 0; k < 3; ++k) {
      EXPECT_NEAR(
          other.summary.iterations[k].reward_mean, alone_.summary.iterations[k].reward_mean, 1e-5);
    }
    EXPECT_GT(mean_reward(other.summary, kIterations - 5, kIterations), 0.9);
  }
}

}  // namespace
}  // namespace rpeg
