#include "rpeg/spec/model_spec.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

/// What a checkpoint must say; the rest has defaults.
Json least_config() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 3, "hidden_size": 64,
    "intermediate_size": 172, "vocab_size": 100, "num_attention_heads": 8})");
}

class HfConfig : public testing::Test {
 protected:
  void SetUp() override {
    directory = test::test_directory();
    fs::remove_all(directory);
  }
  void TearDown() override { fs::remove_all(directory); }

  ModelSpec load(const Json& json) const {
    write_file_atomic(directory / "config.json", json.dump());
    return load_hf_config(directory);
  }

  /// The message that the least configuration gets once `key` is `value`.
  std::string error_with(const char* key, const Json& value) const {
    Json json = least_config();
    json[key] = value;
    return error_of(json);
  }
  std::string error_of(const Json& json) const {
    try {
      load(json);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_EQ(error.where(), (directory / "config.json").string());
      return error.message();
    }
    return "no error";
  }

  fs::path directory;
};

TEST_F(HfConfig, DefaultsAreThoseOfTheFormat) {
  const ModelSpec spec = load(least_config());
  EXPECT_EQ(spec.layers, 3);
  EXPECT_EQ(spec.num_kv_heads, 8);
  EXPECT_EQ(spec.head_dim, 64 / 8);
  EXPECT_FALSE(spec.tied_embeddings);
  EXPECT_EQ(spec.rope_theta, 10000.0);
  EXPECT_EQ(spec.rms_norm_eps, 1e-6);
  EXPECT_EQ(spec.max_positions, 2048);
  EXPECT_EQ(spec, load_hf_config(directory / "config.json"));
}

TEST_F(HfConfig, TextReadsBackAsTheSameSpec) {
  ModelSpec spec;
  spec.layers = 2;
  spec.hidden_dim = 12;
  spec.ffn_dim = 10;
  spec.vocab_size = 11;
  spec.head_dim = 4;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.tied_embeddings = true;
  spec.rope_theta = 500000.0;
  spec.rms_norm_eps = 1e-6;
  spec.max_positions = 77;
  spec.initializer_range = 0.4;
  EXPECT_EQ(load(Json::parse(hf_config_text(spec))), spec);
  for (const ModelFamily family :
       {ModelFamily::kLlama, ModelFamily::kQwen2, ModelFamily::kQwen3, ModelFamily::kMistral}) {
    spec.family = family;
    spec.qkv_bias = family == ModelFamily::kQwen2;
    spec.qk_norm = family == ModelFamily::kQwen3;
    for (const RopeScalingKind kind :
         {RopeScalingKind::kNone, RopeScalingKind::kLinear, RopeScalingKind::kLlama3}) {
      spec.rope_scaling = {.kind = kind};
      if (kind != RopeScalingKind::kNone) {
        spec.rope_scaling.factor = 8.0;
      }
      if (kind == RopeScalingKind::kLlama3) {
        spec.rope_scaling.high_freq_factor = 3.0;
        spec.rope_scaling.original_positions = 50;
      }
      for (const bool scalar_head : {false, true}) {
        const HfConfigOptions options{.scalar_head = scalar_head, .bf16 = true};
        EXPECT_EQ(load(Json::parse(hf_config_text(spec, options))), spec) << to_string(family);
      }
    }
  }
  spec.qkv_bias = true;  // of a Mistral model
  EXPECT_THROW(hf_config_text(spec), Error);
}

TEST_F(HfConfig, DefaultsDifferByFamily) {
  Json json = least_config();
  json["architectures"] = {"Qwen3ForCausalLM"};
  EXPECT_EQ(load(json).head_dim, 128);
  EXPECT_TRUE(load(json).qk_norm);
  EXPECT_EQ(load(json).max_positions, 32768);
  json["architectures"] = {"Qwen2ForSequenceClassification"};
  EXPECT_TRUE(load(json).qkv_bias);
  EXPECT_EQ(load(json).head_dim, 64 / 8);
  json["architectures"] = {"MistralForCausalLM"};
  json["num_attention_heads"] = 16;
  EXPECT_EQ(load(json).num_kv_heads, 8);
}

TEST_F(HfConfig, ASlidingWindowLimitsThePositionsWhereItIsInUse) {
  Json json = least_config();
  json["max_position_embeddings"] = 1000;
  json["sliding_window"] = 100;
  EXPECT_EQ(load(json).max_positions, 1000);  // Llama has none
  json["architectures"] = {"MistralForCausalLM"};
  EXPECT_EQ(load(json).max_positions, 100);
  json["sliding_window"] = nullptr;
  EXPECT_EQ(load(json).max_positions, 1000);
  json.erase("sliding_window");
  json["max_position_embeddings"] = 10000;
  EXPECT_EQ(load(json).max_positions, 4096);  // the format's default
  json["max_position_embeddings"] = 1000;
  json["architectures"] = {"Qwen2ForCausalLM"};
  json["sliding_window"] = 100;
  EXPECT_EQ(load(json).max_positions, 1000);
  json["use_sliding_window"] = true;
  json["max_window_layers"] = 3;  // of three layers: those behind the third
  EXPECT_EQ(load(json).max_positions, 1000);
  for (const int first : {0, 2}) {
    json["max_window_layers"] = first;
    EXPECT_EQ(load(json).max_positions, 100);
  }
  json["layer_types"] = {"full_attention", "full_attention", "full_attention"};
  EXPECT_EQ(load(json).max_positions, 1000);
}

TEST_F(HfConfig, ReadsTheScalingOfEitherForm) {
  const Json numbers = {{"factor", 32.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 512}};
  const RopeScaling expected{RopeScalingKind::kLlama3, 32.0, 1.0, 4.0, 512};
  for (const char* type_key : {"type", "rope_type"}) {
    Json json = least_config();
    json["rope_scaling"] = numbers;
    json["rope_scaling"][type_key] = "llama3";
    EXPECT_EQ(load(json).rope_scaling, expected);
  }
  Json json = least_config();
  json["rope_parameters"] = numbers;
  json["rope_parameters"]["rope_type"] = "llama3";
  json["rope_parameters"]["rope_theta"] = 500000.0;
  EXPECT_EQ(load(json).rope_scaling, expected);
  EXPECT_EQ(load(json).rope_theta, 500000.0);
  json["rope_parameters"].erase("factor");
  EXPECT_EQ(error_of(json), "RoPE scaling: key 'factor' is missing");
}

TEST_F(HfConfig, ReadsTheRotaryBaseOfEitherForm) {
  Json json = Json::parse(hf_config_text(load(least_config())));
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json["rope_parameters"] = {{"rope_theta", 500000.0}, {"rope_type", "default"}};
  EXPECT_EQ(load(json).rope_theta, 500000.0);
  EXPECT_NE(error_with("rope_parameters", {{"rope_type", "yarn"}}).find("rope_parameters"),
            std::string::npos);
}

TEST_F(HfConfig, RefusesByNameWhatCannotBeTrained) {
  EXPECT_EQ(error_with("architectures", {"MixtralForCausalLM"}),
            "architecture [\"MixtralForCausalLM\"] is not supported; RPEG trains LlamaForCausalLM, "
            "Qwen2ForCausalLM, Qwen3ForCausalLM, MistralForCausalLM");
  EXPECT_NE(error_with("attention_bias", true).find("attention_bias"), std::string::npos);
  EXPECT_NE(error_with("mlp_bias", true).find("mlp_bias"), std::string::npos);
  EXPECT_NE(error_with("rope_scaling", {{"rope_type", "dynamic"}}).find("rope_scaling"),
            std::string::npos);
  EXPECT_NE(error_with("rope_scaling", 2.0).find("rope_scaling"), std::string::npos);
  EXPECT_NE(error_with("partial_rotary_factor", 0.5).find("partial_rotary_factor"),
            std::string::npos);
  EXPECT_NE(error_with("hidden_act", "gelu").find("hidden_act \"gelu\""), std::string::npos);
  EXPECT_EQ(error_with("rope_scaling", nullptr), "no error");
}

TEST_F(HfConfig, NamesAMissingOrIllTypedKey) {
  for (const char* key : {"num_hidden_layers",
                          "hidden_size",
                          "intermediate_size",
                          "vocab_size",
                          "num_attention_heads"}) {
    Json json = least_config();
    json.erase(key);
    EXPECT_EQ(error_of(json), std::string("key '") + key + "' is missing");
  }
  EXPECT_EQ(error_with("hidden_size", "64"),
            "'hidden_size' must be a whole number of at least 1, not \"64\"");
  for (const Json& size : {Json(-1), Json(0), Json(1.5), Json(1e18), Json(UINT64_MAX)}) {
    EXPECT_NE(error_with("vocab_size", size).find("whole number"), std::string::npos) << size;
  }
  EXPECT_NE(error_with("rms_norm_eps", 0).find("above 0"), std::string::npos);
  EXPECT_NE(error_with("tie_word_embeddings", 1).find("true or false"), std::string::npos);
  EXPECT_NE(error_with("num_key_value_heads", 3).find("multiple"), std::string::npos);
  EXPECT_NE(error_with("num_attention_heads", 7).find("multiple"), std::string::npos);
  EXPECT_NE(error_with("head_dim", 7).find("odd"), std::string::npos);
  EXPECT_NE(error_of(Json::array()).find("not a JSON object"), std::string::npos);
}

}  // namespace
}  // namespace rpeg
