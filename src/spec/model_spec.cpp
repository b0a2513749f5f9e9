#include "rpeg/spec/model_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "spec/hf_names.h"

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

/// Rotary base and scaling stand together in `rope_parameters` (written by transformers 5), or
/// apart as `rope_theta` and `rope_scaling`.
struct RopeSource {
  ConfigFile parameters;  ///< of the scaling
  std::string key;
  double theta = 0.0;
};

RopeSource find_rope(const ConfigFile& config) {
  constexpr double kTheta = 10000.0;
  const std::string key =
      config.get("rope_parameters").is_null() ? "rope_scaling" : "rope_parameters";
  const Json& json = config.get(key.c_str());
  if (!json.is_null() && !json.is_object()) {
    config.fail(fmt::format("'{}' must be null or an object, not {}", key, json.dump()));
  }
  const double theta = read_positive_or(config, "rope_theta", kTheta);
  RopeSource source{{json.is_null() ? Json::object() : json, config.path}, key, theta};
  source.theta = read_positive_or(source.parameters, "rope_theta", theta);
  return source;
}

double read_positive(const ConfigFile& config, const char* key) {
  if (config.get(key).is_null()) {
    config.fail(fmt::format("RoPE scaling: key '{}' is missing", key));
  }
  return read_positive_or(config, key, 0.0);
}

void read_rope(const ConfigFile& config, ModelSpec& spec) {
  const RopeSource source = find_rope(config);
  spec.rope_theta = source.theta;
  const ConfigFile& rope = source.parameters;
  // `type` is the older name.
  const char* type_key = rope.get("rope_type").is_null() ? "type" : "rope_type";
  const Json& type = rope.get(type_key);
  const std::string kind = type.is_null()     ? "default"
                           : type.is_string() ? type.get<std::string>()
                                              : type.dump();
  if (kind == "default") {
    return;
  }
  if (kind != "linear" && kind != "llama3") {
    config.fail(fmt::format("{} {} is not supported; RPEG knows the types default, linear, llama3",
                            source.key,
                            rope.json.dump()));
  }
  spec.rope_scaling.factor = read_positive(rope, "factor");
  if (kind == "linear") {
    spec.rope_scaling.kind = RopeScalingKind::kLinear;
    return;
  }
  spec.rope_scaling.kind = RopeScalingKind::kLlama3;
  spec.rope_scaling.low_freq_factor = read_positive(rope, "low_freq_factor");
  spec.rope_scaling.high_freq_factor = read_positive(rope, "high_freq_factor");
  spec.rope_scaling.original_positions =
      read_size_or(rope, "original_max_position_embeddings", spec.max_positions);
  if (spec.rope_scaling.low_freq_factor >= spec.rope_scaling.high_freq_factor) {
    config.fail(fmt::format("{}: low_freq_factor must be below high_freq_factor", source.key));
  }
}

/// Whether some layer attends only to a window before each token.
bool has_window(const ConfigFile& config, const ModelSpec& spec) {
  if (spec.family == ModelFamily::kLlama) {
    return false;
  }
  // Null means none; a config.json without the key means the default width.
  if (config.json.contains("sliding_window") && config.get("sliding_window").is_null()) {
    return false;
  }
  if (spec.family == ModelFamily::kMistral) {
    return true;
  }
  if (!read_flag_or(config, "use_sliding_window", false)) {
    return false;
  }
  const Json& types = config.get("layer_types");
  if (types.is_array()) {
    return std::find(types.begin(), types.end(), "sliding_attention") != types.end();
  }
  constexpr std::int64_t kFirstWindowLayer = 28;
  const Json& first = config.get("max_window_layers");  // may be 0
  return (first.is_number_integer() ? first.get<std::int64_t>() : kFirstWindowLayer) < spec.layers;
}

/// Sequences within the window are attended to as a whole; longer ones are out of reach.
void limit_to_window(const ConfigFile& config, ModelSpec& spec) {
  constexpr std::int64_t kWindow = 4096;
  if (has_window(config, spec)) {
    spec.max_positions =
        std::min(spec.max_positions, read_size_or(config, "sliding_window", kWindow));
  }
}

ModelFamily read_family(const ConfigFile& config) {
  const Json& architectures = config.get("architectures");
  std::string known;
  for (const HfFamily& family : kHfFamilies) {
    if (architectures.is_array() && architectures.size() == 1 &&
        (architectures[0] == family.language_model || architectures[0] == family.classifier)) {
      return family.family;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.language_model);
  }
  config.fail(
      fmt::format("architecture {} is not supported; RPEG trains {}", architectures.dump(), known));
}

/// Refuses by name what RPEG cannot train.
void check_supported(const ConfigFile& config) {
  for (const char* bias : {"attention_bias", "mlp_bias"}) {
    if (read_flag_or(config, bias, false)) {
      config.fail(
          fmt::format("'{}: true' is not supported: RPEG trains models without such biases", bias));
    }
  }
  const Json& activation = config.get("hidden_act");
  if (!activation.is_null() && activation != "silu") {
    config.fail(fmt::format("hidden_act {} is not supported; only \"silu\" is", activation.dump()));
  }
  if (read_positive_or(config, "partial_rotary_factor", 1.0) != 1.0) {
    config.fail("partial_rotary_factor is not supported: RPEG rotates whole heads");
  }
}

/// What transformers takes for keys that a config.json leaves out.
void read_heads(const ConfigFile& config, ModelSpec& spec) {
  constexpr std::int64_t kMistralKeyValueHeads = 8;
  constexpr std::int64_t kQwen3HeadDim = 128;
  spec.num_heads = read_size(config, "num_attention_heads");
  spec.num_kv_heads =
      read_size_or(config,
                   "num_key_value_heads",
                   spec.family == ModelFamily::kMistral ? kMistralKeyValueHeads : spec.num_heads);
  if (spec.num_heads % spec.num_kv_heads != 0) {
    config.fail(fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}",
                            spec.num_heads,
                            spec.num_kv_heads));
  }
  if (config.get("head_dim").is_null() && spec.family == ModelFamily::kQwen3) {
    spec.head_dim = kQwen3HeadDim;
    return;
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
}

std::int64_t default_positions(ModelFamily family) {
  switch (family) {
    case ModelFamily::kLlama:
      return 2048;
    case ModelFamily::kQwen2:
    case ModelFamily::kQwen3:
      return 32768;
    case ModelFamily::kMistral:
      return 131072;
  }
  return 0;
}

}  // namespace

const char* to_string(ModelFamily family) { return hf_family(family).model_type; }

ModelSpec load_hf_config(const std::filesystem::path& path) {
  const ConfigFile config = read_config(path);
  ModelSpec spec;
  spec.family = read_family(config);
  check_supported(config);
  spec.layers = read_size(config, "num_hidden_layers");
  spec.hidden_dim = read_size(config, "hidden_size");
  spec.ffn_dim = read_size(config, "intermediate_size");
  spec.vocab_size = read_size(config, "vocab_size");
  read_heads(config, spec);
  spec.gated_ffn = true;
  spec.tied_embeddings = read_flag_or(config, "tie_word_embeddings", false);
  spec.qkv_bias = spec.family == ModelFamily::kQwen2;
  spec.qk_norm = spec.family == ModelFamily::kQwen3;
  spec.rms_norm_eps = read_positive_or(config, "rms_norm_eps", 1e-6);
  spec.max_positions =
      read_size_or(config, "max_position_embeddings", default_positions(spec.family));
  read_rope(config, spec);
  limit_to_window(config, spec);
  spec.initializer_range = read_positive_or(config, "initializer_range", 0.02);
  return spec;
}

}  // namespace rpeg
