#include "rpeg/model/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/hf/safetensors.h"
#include "rpeg/hf/tokenizer.h"
#include "support/sharded_model.h"
#include "support/test_directory.h"
#include "support/tiny_model.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

class ParameterFiles : public testing::Test {
 protected:
  void SetUp() override {
    directory = test::test_directory() / "model";
    fs::remove_all(directory);
  }
  void TearDown() override { fs::remove_all(directory); }

  /// Loads into a buffer of sevens and returns it.
  std::vector<float> load(const ParameterLayout& layout,
                          MissingScalarHead missing = MissingScalarHead::kError) const {
    std::vector<float> weights(static_cast<std::size_t>(layout.total), 7.0F);
    load_parameters(directory, layout, weights, missing);
    return weights;
  }

  std::string load_error(const ParameterLayout& layout) const {
    try {
      load(layout);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return error.what();
    }
    return "no error";
  }

  fs::path directory;
};

TEST(ParameterLayout, CountsWhatAnAuthorCounts) {
  const TinyModel<float> tiny(Head::kLanguageModel, false);
  // Per layer: norms 2 * 12, q and o 2 * 16 * 12, k and v 2 * 8 * 12, feed-forward 3 * 10 * 12.
  const std::int64_t layer = 24 + 384 + 192 + 360;
  EXPECT_EQ(tiny.layout.total, 11 * 12 + 2 * layer + 12 + 11 * 12);
  EXPECT_EQ(tiny.layout.tensors.front().name, "model.embed_tokens.weight");
  EXPECT_EQ(tiny.layout.tensors.back().name, "lm_head.weight");
  std::int64_t offset = 0;
  for (const ParameterTensor& tensor : tiny.layout.tensors) {
    EXPECT_EQ(tensor.offset, offset);
    offset += tensor.count;
  }
}

TEST(ParameterLayout, RefusesAnUngatedFeedForwardBlock) {
  ModelSpec spec = TinyModel<float>(Head::kLanguageModel, false).spec;
  spec.gated_ffn = false;
  EXPECT_THROW(build_parameter_layout(spec, Head::kLanguageModel), Error);
}

TEST(Initialise, IsNormalWithTheConfiguredDeviation) {
  ModelSpec spec = TinyModel<float>(Head::kLanguageModel, true).spec;
  spec.vocab_size = 5000;
  spec.initializer_range = 0.02;
  const ParameterLayout layout = build_parameter_layout(spec, Head::kLanguageModel);
  std::vector<float> weights(static_cast<std::size_t>(layout.total));
  initialise_parameters(spec, layout, 3, weights);
  double sum = 0.0;
  double squares = 0.0;
  double fourth = 0.0;
  const double count = 5000.0 * 12.0;
  for (std::size_t i = 0; i < 60000; ++i) {
    const double z = static_cast<double>(weights[i]) / 0.02;
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
  }
  // Standard errors: 1, sqrt(2) and sqrt(96) over sqrt(60000); the bounds are five of them.
  EXPECT_NEAR(sum / count, 0.0, 5.0 * 0.0041);
  EXPECT_NEAR(squares / count, 1.0, 5.0 * 0.0058);
  EXPECT_NEAR(fourth / count, 3.0, 5.0 * 0.04);
}

TEST(Initialise, GivesActorAndCriticOfOneSeedTheSameTrunk) {
  const ModelSpec spec = TinyModel<float>(Head::kLanguageModel, false).spec;
  const ParameterLayout actor = build_parameter_layout(spec, Head::kLanguageModel);
  const ParameterLayout critic = build_parameter_layout(spec, Head::kScalar);
  std::vector<float> a(static_cast<std::size_t>(actor.total));
  std::vector<float> c(static_cast<std::size_t>(critic.total), 9.0F);
  initialise_parameters(spec, actor, 3, a);
  initialise_parameters(spec, critic, 3, c);
  const std::size_t trunk = c.size() - 12;
  EXPECT_TRUE(std::equal(c.begin(), c.begin() + static_cast<std::ptrdiff_t>(trunk), a.begin()));
  EXPECT_EQ(std::vector<float>(c.end() - 12, c.end()), std::vector<float>(12, 0.0F));
  std::vector<float> other(a.size());
  initialise_parameters(spec, actor, 4, other);
  EXPECT_NE(other, a);
}

TEST_F(ParameterFiles, SavedDirectoryLoadsBitForBit) {
  for (const bool tied : {true, false}) {
    const TinyModel<float> tiny(Head::kLanguageModel, tied);
    const fs::path source = directory / "source";
    write_file_atomic(source / "tokenizer.json", "{\"a\": 1}");
    write_file_atomic(source / "generation_config.json", "{\"b\": 2}");
    save_hf_directory(directory, tiny.spec, tiny.layout, tiny.weights, source);
    EXPECT_EQ(load_hf_config(directory), tiny.spec);
    EXPECT_EQ(load(tiny.layout), tiny.weights);
    EXPECT_EQ(read_file(directory / "tokenizer.json"), "{\"a\": 1}");
    EXPECT_EQ(read_file(directory / "generation_config.json"), "{\"b\": 2}");
    EXPECT_FALSE(fs::exists(directory / "tokenizer_config.json"));
  }
}

TEST_F(ParameterFiles, SavedCriticIsAClassifierOfOneLabel) {
  const TinyModel<float> critic(Head::kScalar, false);
  save_hf_directory(directory, critic.spec, critic.layout, critic.weights, {});
  const std::string config = read_file(directory / "config.json");
  EXPECT_NE(config.find("LlamaForSequenceClassification"), std::string::npos);
  EXPECT_NE(config.find("\"id2label\": {\n    \"0\": \"value\""), std::string::npos);
  EXPECT_EQ(load_hf_config(directory), critic.spec);
  EXPECT_EQ(load(critic.layout), critic.weights);
}

TEST_F(ParameterFiles, SavedDirectoryKeepsStopTokensOfConfigJson) {
  const TinyModel<float> tiny(Head::kLanguageModel, true);
  const fs::path source = directory / "source";
  write_file_atomic(source / "config.json", R"({"eos_token_id": [2, 7]})");
  save_hf_directory(directory, tiny.spec, tiny.layout, tiny.weights, source);
  EXPECT_EQ(load_stop_tokens(directory), (std::vector<std::int32_t>{2, 7}));
}

TEST_F(ParameterFiles, SavedDirectoryMergesStopTokensIntoAGenerationConfigWithoutAny) {
  const TinyModel<float> tiny(Head::kLanguageModel, true);
  const fs::path source = directory / "source";
  write_file_atomic(source / "config.json", R"({"eos_token_id": 5})");
  write_file_atomic(source / "generation_config.json", R"({"top_p": 0.5, "eos_token_id": null})");
  save_hf_directory(directory, tiny.spec, tiny.layout, tiny.weights, source);
  EXPECT_EQ(load_stop_tokens(directory), (std::vector<std::int32_t>{5}));
  EXPECT_NE(read_file(directory / "generation_config.json").find("\"top_p\": 0.5"),
            std::string::npos);
}

/// Loads every shard of a model cut many ways and compares it with its part of the whole.
TEST_F(ParameterFiles, ShardsLoadTheirPartOfEveryTensor) {
  ModelSpec spec = tiny_spec(false);
  spec.layers = 3;
  spec.ffn_dim = 8;
  spec.family = ModelFamily::kQwen2;
  spec.qkv_bias = true;
  const TinyModel<float> tiny(spec, Head::kLanguageModel);
  for (const bool several_files : {false, true}) {
    save_hf_directory(directory,
                      spec,
                      tiny.layout,
                      tiny.weights,
                      {},
                      {.bf16 = false, .file_bytes = several_files ? 1000 : 1000000});
    EXPECT_EQ(fs::exists(directory / "model.safetensors"), !several_files);
    for (int rank = 0; rank < 12; ++rank) {
      const auto layout =
          build_parameter_layout(spec, Head::kLanguageModel, shard_of(spec, 4, 3, rank));
      const std::vector<float> weights = load(layout);
      for (const ParameterTensor& tensor : layout.tensors) {
        std::vector<float> expected(static_cast<std::size_t>(tensor.count));
        take_shard<float>(
            tensor.part,
            tensor_named(tiny.layout, std::span<const float>(tiny.weights), tensor.name),
            expected);
        const auto begin = weights.begin() + tensor.offset;
        EXPECT_EQ(std::vector<float>(begin, begin + tensor.count), expected) << tensor.name;
      }
    }
  }
}

TEST(Shards, PlacedPartsMakeTheWholeTensor) {
  const std::vector<float> whole = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const std::vector<std::vector<ShardTensor>> splits = {
      {{"w", {4, 3}, 0, 0, 1, 3}, {"w", {4, 3}, 0, 1, 4, 9}},
      {{"w", {4, 3}, 1, 0, 2, 8}, {"w", {4, 3}, 1, 2, 3, 4}},
      {{"w", {4, 3}, -1, 0, 1, 12}}};
  for (const std::vector<ShardTensor>& parts : splits) {
    std::vector<float> gathered(whole.size(), -1.0F);
    for (const ShardTensor& part : parts) {
      std::vector<float> held(static_cast<std::size_t>(part.count));
      take_shard<float>(part, whole, held);
      place_shard<float>(part, held, gathered);
    }
    EXPECT_EQ(gathered, whole);
  }
}

TEST(CopyParameters, TakesOneHeadOutOfTwo) {
  const TinyModel<float> both(Head::kBoth, false);
  for (const Head head : {Head::kLanguageModel, Head::kScalar}) {
    const ParameterLayout layout = build_parameter_layout(both.spec, head);
    std::vector<float> weights(static_cast<std::size_t>(layout.total));
    copy_parameters(both.layout, both.weights, layout, weights);
    for (const ParameterTensor& tensor : layout.tensors) {
      const auto expected =
          tensor_named(both.layout, std::span<const float>(both.weights), tensor.name);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), weights.begin() + tensor.offset))
          << tensor.name;
    }
  }
}

TEST_F(ParameterFiles, CriticStartsFromAnActorWithAZeroHead) {
  const TinyModel<float> actor(Head::kLanguageModel, false);
  save_hf_directory(directory, actor.spec, actor.layout, actor.weights, {});
  const ParameterLayout critic = build_parameter_layout(actor.spec, Head::kScalar);
  EXPECT_NE(load_error(critic).find("'score.weight' is missing"), std::string::npos);
  const std::vector<float> weights = load(critic, MissingScalarHead::kZero);
  EXPECT_EQ(std::vector<float>(weights.end() - 12, weights.end()), std::vector<float>(12, 0.0F));
  EXPECT_TRUE(std::equal(weights.begin(), weights.end() - 12, actor.weights.begin()));
}

TEST_F(ParameterFiles, ErrorsNameTheTensor) {
  const TinyModel<float> tied(Head::kLanguageModel, true);
  save_hf_directory(directory, tied.spec, tied.layout, tied.weights, {});
  EXPECT_NE(load_error(build_parameter_layout(TinyModel<float>(Head::kLanguageModel, false).spec,
                                              Head::kLanguageModel))
                .find("'lm_head.weight' is missing"),
            std::string::npos);

  ModelSpec wider = tied.spec;
  wider.vocab_size = 12;
  EXPECT_NE(load_error(build_parameter_layout(wider, Head::kLanguageModel))
                .find("'model.embed_tokens.weight' has shape [11, 12], but config.json implies "
                      "[12, 12]"),
            std::string::npos);

  const std::vector<float> bias(16, 0.0F);
  std::vector<TensorView> tensors = {{"model.layers.0.self_attn.q_proj.bias", {16}, bias}};
  write_file_atomic(directory / "model.safetensors", safetensors_bytes(tensors));
  EXPECT_NE(load_error(tied.layout).find("'model.layers.0.self_attn.q_proj.bias' is not part of"),
            std::string::npos);
  tensors[0].name = "model.layers.2.self_attn.q_proj.weight";  // the model has two layers
  write_file_atomic(directory / "model.safetensors", safetensors_bytes(tensors));
  EXPECT_NE(load_error(tied.layout).find("layers.2.self_attn.q_proj.weight' is not part of"),
            std::string::npos);
}

}  // namespace
}  // namespace rpeg
