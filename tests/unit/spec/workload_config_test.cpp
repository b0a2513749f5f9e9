#include "rpeg/spec/workload_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/rng.h"
#include "rpeg/yaml/writer.h"
#include "support/random_config.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

using ::testing::HasSubstr;

const std::string kPublished =
    std::string(RPEG_SOURCE_DIR) + "/tests/golden/data/published/workload.yaml";

std::string with(const std::string& from, const std::string& to) {
  std::string text = read_file(kPublished);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string error_of(const std::string& text) {
  try {
    parse_workload_config(text, "w.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(WorkloadConfig, ReadsThePublishedSample) {
  const WorkloadConfig config = load_workload_config(kPublished);
  EXPECT_EQ(config.hardware.gpu_count(), 32);  // 1 x 8 x 4
  const ModelSpec& actor = config.model(ModelRole::kActor);
  EXPECT_EQ(actor.num_heads, 32);  // 4096 / 128
  EXPECT_EQ(actor.num_kv_heads, 32);
  EXPECT_TRUE(actor.gated_ffn);
  EXPECT_EQ(config.model(ModelRole::kReference), actor);
  EXPECT_EQ(config.workload.sequences(), 64);
  ASSERT_EQ(config.workload.gen_quantiles.size(), 3u);
  EXPECT_EQ(config.workload.gen_quantiles[1], (LengthQuantile{0.85, 256}));
  EXPECT_EQ(config.policy, PolicySpec{});
  EXPECT_EQ(config.optimizer.staleness_actor, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(config.optimizer.k_x, 6);
  EXPECT_FALSE(config.optimizer.evals);
  EXPECT_TRUE(config.output.plots);
  EXPECT_EQ(config.output.opt_plan, "plans/optimized.yaml");
  EXPECT_EQ(config.seed, 42u);
}

TEST(WorkloadConfig, AcceptsTheSeedInEitherPlace) {
  EXPECT_EQ(parse_workload_config(with("\nseed: 42", "\n  seed: 42"), "w").seed, 42u);
  EXPECT_EQ(parse_workload_config(with("output:\n", "output:\n  seed: 42\n"), "w").seed, 42u);
  EXPECT_THAT(error_of(with("output:\n", "output:\n  seed: 41\n")),
              HasSubstr("is 42 here and 41 in output.seed"));
}

TEST(WorkloadConfig, SaysOfAnEmptyFileOnlyThatItIsEmpty) {
  EXPECT_EQ(error_of(""), "w.yaml: expected a map of keys and values, found nothing");
}

TEST(WorkloadConfig, CompletesHeads) {
  const WorkloadConfig config =
      parse_workload_config(with("head_dim: 128", "num_heads: 64\n    num_kv_heads: 8"), "w");
  EXPECT_EQ(config.model(ModelRole::kActor).head_dim, 64);  // 4096 / 64
  const WorkloadConfig wide =
      parse_workload_config(with("head_dim: 128", "head_dim: 256\n    num_heads: 32"), "w");
  EXPECT_EQ(wide.model(ModelRole::kActor).num_heads, 32);  // not 4096 / 256
}

TEST(WorkloadConfig, ShowsTheArithmeticOfRulesBetweenFields) {
  EXPECT_THAT(error_of(with("head_dim: 128", "head_dim: 96")),
              HasSubstr("hidden_dim 4096 is not a multiple of head_dim 96"));
  EXPECT_THAT(error_of(with("ppo", "ppo\n  minibatches: 3")),
              HasSubstr("= 64 sequences do not divide into 3 equal mini-batches (3 x 21 = 63, 1"));
  EXPECT_THAT(error_of(with("nodes_per_rack: 8", "nodes_per_rack: 8\n  max_gpus: 33")),
              HasSubstr("1 x 8 x 4 = 32 GPUs"));
  EXPECT_THAT(error_of(with("t_init: 0.05", "t_init: 0.04")),
              HasSubstr("t_init 0.04 < t_min 0.05"));
}

TEST(WorkloadConfig, NeedsTheModelsThatTheAlgorithmUsesAndAllowsOthers) {
  const std::string grpo = with("algorithm: ppo", "algorithm: grpo");
  EXPECT_THAT(error_of(grpo), HasSubstr("grpo compares the samples of a prompt"));
  EXPECT_EQ(error_of(with("  critic:\n    layers", "  reference:\n    layers")),
            "w.yaml:9:3: `models.critic`: required key is missing: ppo uses this model");
  EXPECT_TRUE(needs_model({.reward = RewardSource::kModel}, ModelRole::kReward));
  EXPECT_FALSE(needs_model({.reward = RewardSource::kVerifier}, ModelRole::kReward));
  EXPECT_FALSE(needs_model({.algorithm = Algorithm::kDpo}, ModelRole::kReward));
}

TEST(WorkloadConfig, TakesAShapeFromAHuggingFaceConfig) {
  const std::filesystem::path directory = test::test_directory();
  ModelSpec shape;
  shape.layers = 2;
  shape.hidden_dim = 64;
  shape.ffn_dim = 160;
  shape.vocab_size = 512;
  shape.head_dim = 16;
  shape.num_heads = 4;
  shape.num_kv_heads = 2;
  write_file_atomic(directory / "m/config.json", hf_config_text(shape));
  const std::string block =
      "actor:\n    layers: 32\n    hidden_dim: 4096\n    ffn_dim: 11008\n"
      "    vocab_size: 32000\n    head_dim: 128\n";
  const auto parse = [&](const std::string& replacement) {
    return parse_workload_config(with(block, replacement), directory / "w.yaml");
  };
  const WorkloadConfig config = parse("actor: {hf_config: m/config.json}\n");
  EXPECT_EQ(config.model(ModelRole::kActor), shape);
  EXPECT_THROW(parse("actor: {hf_config: m/config.json, layers: 2}\n"), Error);
  EXPECT_THROW(parse("actor: {hf_config: absent.json}\n"), Error);
}

TEST(WorkloadConfig, WhatIsWrittenReadsBackEqual) {
  Rng rng(29);
  for (int round = 0; round < 500; ++round) {
    const WorkloadConfig config = random_workload_config(rng);
    YamlWriter writer;
    write_workload_inputs(writer, config);
    ASSERT_EQ(parse_workload_config(writer.text(), "w"), config) << writer.text();
  }
}

TEST(WorkloadConfig, MutatedFilesNeverCrash) {
  const std::string seed_text = read_file(kPublished);
  const std::string alphabet = "{}[]:,-#&'\" \n.eE+0123456789az\x01";
  Rng rng(31);
  for (int round = 0; round < 3000; ++round) {
    std::string text = seed_text;
    for (std::int64_t edits = 1 + rng.below(5); edits > 0; --edits) {
      const auto at = static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(text.size())));
      text[at] =
          alphabet[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(alphabet.size())))];
    }
    try {
      parse_workload_config(text, "w");
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kUsage) << text;
    }
  }
}

TEST(WorkloadConfig, EveryExampleInConfigsLoads) {
  int loaded = 0;
  const std::filesystem::path configs = std::filesystem::path(RPEG_SOURCE_DIR) / "configs";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(configs)) {
    const std::string name = entry.path().filename().string();
    const bool is_workload =
        name.starts_with("workload") || entry.path().parent_path().filename() == "workload";
    if (entry.path().extension() == ".yaml" && is_workload) {
      EXPECT_NO_THROW(load_workload_config(entry.path())) << entry.path();
      ++loaded;
    }
  }
  EXPECT_GE(loaded, 3);
}

}  // namespace
}  // namespace rpeg
