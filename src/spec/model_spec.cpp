#include "rpeg/spec/model_spec.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"

namespace rpeg {
namespace {

using Json = nlohmann::json;

/// A config.json and where it was read.
struct ConfigFile {
  Json json;
  std::string path;

  [[noreturn]] void fail(const std::string& message) const {
    throw Error(ErrorKind::kUsage, message, path);
  }

  /// Null for an absent key: Hugging Face writes both for "not set".
  const Json& get(const char* key) const {
    static const Json kNull;
    const auto found = json.find(key);
    return found == json.end() ? kNull : *found;
  }
};

// No real model comes near; products of two such sizes fit in 63 bits.
constexpr std::int64_t kLargestSize = std::int64_t{1} << 30;

std::int64_t read_size(const ConfigFile& config, const char* key) {
  const Json& value = config.get(key);
  if (value.is_null()) {
    config.fail(fmt::format("key '{}' is missing", key));
  }
  if (!value.is_number_integer() || value < 1 || value > kLargestSize) {
    config.fail(
        fmt::format("'{}' must be a whole number of at least 1, not {}", key, value.dump()));
  }
  return value.get<std::int64_t>();
}

std::int64_t read_size_or(const ConfigFile& config, const char* key, std::int64_t otherwise) {
  return config.get(key).is_null() ? otherwise : read_size(config, key);
}

double read_positive_or(const ConfigFile& config, const char* key, double otherwise) {
  const Json& value = config.get(key);
  if (value.is_null()) {
    return otherwise;
  }
  if (!value.is_number() || !(value.get<double>() > 0.0)) {
    config.fail(fmt::format("'{}' must be a number above 0, not {}", key, value.dump()));
  }
  return value.get<double>();
}

bool read_flag_or(const ConfigFile& config, const char* key, bool otherwise) {
  const Json& value = config.get(key);
  if (value.is_null()) {
    return otherwise;
  }
  if (!value.is_boolean()) {
    config.fail(fmt::format("'{}' must be true or false, not {}", key, value.dump()));
  }
  return value.get<bool>();
}

ConfigFile read_config(const std::filesystem::path& path) {
  const auto file = std::filesystem::is_directory(path) ? path / "config.json" : path;
  ConfigFile config{Json::parse(read_file(file), nullptr, /*allow_exceptions=*/false),
                    file.string()};
  if (!config.json.is_object()) {
    config.fail("is not a JSON object");
  }
  return config;
}

/// The rotary base stands in `rope_parameters` (written by transformers 5) or beside the sizes.
double read_rope_theta(const ConfigFile& config) {
  constexpr double kTheta = 10000.0;
  const Json& parameters = config.get("rope_parameters");
  if (parameters.is_null()) {
    return read_positive_or(config, "rope_theta", kTheta);
  }
  const ConfigFile rope{parameters, config.path};
  if (!parameters.is_object() || rope.json.value("rope_type", Json("default")) != "default") {
    config.fail(fmt::format("rope_parameters {} is not supported; only rope_type \"default\" is",
                            parameters.dump()));
  }
  return read_positive_or(rope, "rope_theta", kTheta);
}

/// Refuses by name what RPEG cannot train.
void check_supported(const ConfigFile& config) {
  const Json& architectures = config.get("architectures");
  if (!architectures.is_array() || architectures.size() != 1 ||
      architectures[0] != "LlamaForCausalLM") {
    config.fail(fmt::format("architecture {} is not supported; RPEG trains LlamaForCausalLM",
                            architectures.dump()));
  }
  for (const char* bias : {"attention_bias", "mlp_bias"}) {
    if (read_flag_or(config, bias, false)) {
      config.fail(
          fmt::format("'{}: true' is not supported: RPEG trains models without biases", bias));
    }
  }
  if (!config.get("rope_scaling").is_null()) {
    config.fail(fmt::format("rope_scaling {} is not supported; only null is",
                            config.get("rope_scaling").dump()));
  }
  const Json& activation = config.get("hidden_act");
  if (!activation.is_null() && activation != "silu") {
    config.fail(fmt::format("hidden_act {} is not supported; only \"silu\" is", activation.dump()));
  }
}

}  // namespace

ModelSpec load_hf_config(const std::filesystem::path& path) {
  const ConfigFile config = read_config(path);
  check_supported(config);
  ModelSpec spec;
  spec.layers = read_size(config, "num_hidden_layers");
  spec.hidden_dim = read_size(config, "hidden_size");
  spec.ffn_dim = read_size(config, "intermediate_size");
  spec.vocab_size = read_size(config, "vocab_size");
  spec.num_heads = read_size(config, "num_attention_heads");
  spec.num_kv_heads = read_size_or(config, "num_key_value_heads", spec.num_heads);
  if (spec.num_heads % spec.num_kv_heads != 0) {
    config.fail(fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}",
                            spec.num_heads,
                            spec.num_kv_heads));
  }
  if (config.get("head_dim").is_null() && spec.hidden_dim % spec.num_heads != 0) {
    config.fail(fmt::format("hidden_size {} is not a multiple of num_attention_heads {}",
                            spec.hidden_dim,
                            spec.num_heads));
  }
  spec.head_dim = read_size_or(config, "head_dim", spec.hidden_dim / spec.num_heads);
  if (spec.head_dim % 2 != 0) {
    config.fail(fmt::format("head_dim {} is odd; rotary embeddings rotate pairs", spec.head_dim));
  }
  spec.gated_ffn = true;
  spec.tied_embeddings = read_flag_or(config, "tie_word_embeddings", false);
  spec.rope_theta = read_rope_theta(config);
  spec.rms_norm_eps = read_positive_or(config, "rms_norm_eps", 1e-6);
  spec.max_positions = read_size_or(config, "max_position_embeddings", 2048);
  spec.initializer_range = read_positive_or(config, "initializer_range", 0.02);
  return spec;
}

std::string hf_config_text(const ModelSpec& spec) {
  nlohmann::ordered_json json;
  json["architectures"] = {"LlamaForCausalLM"};
  json["attention_bias"] = false;
  json["attention_dropout"] = 0.0;
  json["head_dim"] = spec.head_dim;
  json["hidden_act"] = "silu";
  json["hidden_size"] = spec.hidden_dim;
  json["initializer_range"] = spec.initializer_range;
  json["intermediate_size"] = spec.ffn_dim;
  json["max_position_embeddings"] = spec.max_positions;
  json["mlp_bias"] = false;
  json["model_type"] = "llama";
  json["num_attention_heads"] = spec.num_heads;
  json["num_hidden_layers"] = spec.layers;
  json["num_key_value_heads"] = spec.num_kv_heads;
  json["rms_norm_eps"] = spec.rms_norm_eps;
  json["rope_scaling"] = nullptr;
  json["rope_theta"] = spec.rope_theta;
  json["tie_word_embeddings"] = spec.tied_embeddings;
  json["torch_dtype"] = "float32";
  json["use_cache"] = true;
  json["vocab_size"] = spec.vocab_size;
  return json.dump(2) + "\n";
}

}  // namespace rpeg
