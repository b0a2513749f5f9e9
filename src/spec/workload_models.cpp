#include "spec/workload_models.h"

#include <fmt/format.h>

#include "rpeg/base/error.h"
#include "spec/hf_names.h"
#include "spec/workload_checks.h"
#include "spec/workload_names.h"

namespace rpeg {
namespace {

constexpr Bounds kTokens{1, 1e8};
constexpr Bounds kWidth{1, 1e7};
constexpr Bounds kPositive{1e-12, 1e12};

RopeScaling read_rope_scaling(MapReader reader) {
  RopeScaling scaling;
  scaling.kind = static_cast<RopeScalingKind>(reader.choice("type", words::kRopeScaling));
  scaling.factor = reader.number("factor", kPositive);
  if (scaling.kind == RopeScalingKind::kLlama3) {
    scaling.low_freq_factor = reader.number("low_freq_factor", kPositive);
    scaling.high_freq_factor = reader.number("high_freq_factor", kPositive);
    scaling.original_positions = reader.integer("original_positions", kTokens);
  }
  reader.finish();
  return scaling;
}

/// The family says which biases and norms there are; for the shape alone they may stand by
/// themselves.
void read_family(MapReader& reader, ModelSpec& model) {
  model.qkv_bias = reader.boolean("qkv_bias", false);
  model.qk_norm = reader.boolean("qk_norm", false);
  const ModelFamily implied = model.qkv_bias  ? ModelFamily::kQwen2
                              : model.qk_norm ? ModelFamily::kQwen3
                                              : ModelFamily::kLlama;
  std::vector<std::string> families;
  for (const HfFamily& family : kHfFamilies) {
    families.emplace_back(family.model_type);
  }
  model.family = static_cast<ModelFamily>(
      reader.choice("family", families, static_cast<std::size_t>(implied)));
  if (model.qkv_bias != (model.family == ModelFamily::kQwen2) ||
      model.qk_norm != (model.family == ModelFamily::kQwen3)) {
    reader.fault("family",
                 "does not go with qkv_bias and qk_norm: qwen2 has qkv_bias: true, qwen3 has "
                 "qk_norm: true, the others neither");
  }
}

void read_execution_fields(MapReader& reader, ModelSpec& model) {
  read_family(reader, model);
  if (reader.has("rope_scaling")) {
    model.rope_scaling = read_rope_scaling(reader.map("rope_scaling", false));
  }
  reader.ignore("rope_scaling");
  model.rope_theta = reader.number("rope_theta", {1, 1e12}, model.rope_theta);
  model.rms_norm_eps = reader.number("rms_norm_eps", {1e-20, 1}, model.rms_norm_eps);
  model.max_positions = reader.integer("max_positions", kTokens, model.max_positions);
  model.initializer_range = reader.number("initializer_range", {0, 10}, model.initializer_range);
}

/// head_dim and num_heads complete each other through hidden_dim; at least one must be given.
void complete_heads(MapReader& reader, ModelSpec& model) {
  const bool has_heads = reader.has("num_heads");
  const bool has_dim = reader.has("head_dim");
  if (has_heads) {
    model.num_heads = reader.integer("num_heads", kWidth);
  }
  if (has_dim || !has_heads) {
    model.head_dim = reader.integer("head_dim", kWidth);
  }
  reader.ignore("num_heads");
  reader.ignore("head_dim");
  if (has_heads && !has_dim && model.num_heads > 0) {
    if (model.hidden_dim % model.num_heads != 0) {
      reader.fault("num_heads",
                   fmt::format("hidden_dim {} is not a multiple of num_heads {}; give head_dim",
                               model.hidden_dim,
                               model.num_heads));
    }
    model.head_dim = model.hidden_dim / model.num_heads;
  }
  if (!has_heads && has_dim && model.head_dim > 0) {
    if (model.hidden_dim % model.head_dim != 0) {
      reader.fault("head_dim",
                   fmt::format("hidden_dim {} is not a multiple of head_dim {}; give num_heads",
                               model.hidden_dim,
                               model.head_dim));
    }
    model.num_heads = model.hidden_dim / model.head_dim;
  }
}

ModelSpec read_shape(MapReader& reader) {
  ModelSpec model;
  model.layers = reader.integer("layers", {1, 1e5});
  model.hidden_dim = reader.integer("hidden_dim", kWidth);
  model.ffn_dim = reader.integer("ffn_dim", kWidth);
  model.vocab_size = reader.integer("vocab_size", kTokens);
  complete_heads(reader, model);
  model.num_kv_heads = reader.integer("num_kv_heads", kWidth, model.num_heads);
  model.gated_ffn = reader.boolean("gated_ffn", true);
  model.tied_embeddings = reader.boolean("tied_embeddings", false);
  read_execution_fields(reader, model);
  return model;
}

ModelSpec read_hf_shape(MapReader& reader,
                        const YamlValue& value,
                        const std::filesystem::path& directory) {
  const std::string path = reader.string("hf_config");
  for (const auto& [key, item] : value.fields) {
    if (key != "hf_config") {
      reader.fault(key, "hf_config gives the whole shape; remove this key or hf_config");
      reader.ignore(key);
    }
  }
  if (path.empty()) {
    return {};
  }
  try {
    return load_hf_config(directory / path);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUsage) {
      throw;
    }
    reader.fault("hf_config", error.what());
    return {};
  }
}

}  // namespace

std::optional<ModelSpec> read_model(MapReader& models,
                                    ModelRole role,
                                    const std::filesystem::path& directory) {
  const YamlValue* value = models.value(to_string(role), false);
  if (value == nullptr) {
    return std::nullopt;
  }
  Faults& faults = models.faults();
  const std::size_t before = faults.count();
  MapReader reader(*value, fmt::format("models.{}", to_string(role)), faults);
  const bool from_hf = reader.has("hf_config");
  const ModelSpec model = from_hf ? read_hf_shape(reader, *value, directory) : read_shape(reader);
  reader.ignore("hf_config");
  reader.finish();
  if (faults.count() == before) {
    check_heads(model, reader);
  }
  return model;
}

}  // namespace rpeg
