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
}

TEST_F(HfConfig, ReadsTheRotaryBaseOfEitherForm) {
  Json json = Json::parse(hf_config_text(load(least_config())));
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json["rope_parameters"] = {{"rope_theta", 500000.0}, {"rope_type", "default"}};
  EXPECT_EQ(load(json).rope_theta, 500000.0);
  EXPECT_NE(error_with("rope_parameters", {{"rope_type", "llama3"}}).find("rope_parameters"),
            std::string::npos);
}

TEST_F(HfConfig, RefusesByNameWhatCannotBeTrained) {
  EXPECT_EQ(error_with("architectures", {"MixtralForCausalLM"}),
            "architecture [\"MixtralForCausalLM\"] is not supported; RPEG trains LlamaForCausalLM");
  EXPECT_NE(error_with("attention_bias", true).find("attention_bias"), std::string::npos);
  EXPECT_NE(error_with("mlp_bias", true).find("mlp_bias"), std::string::npos);
  EXPECT_NE(error_with("rope_scaling", {{"rope_type", "llama3"}}).find("rope_scaling"),
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
