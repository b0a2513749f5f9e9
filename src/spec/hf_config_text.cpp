#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "rpeg/base/error.h"
#include "rpeg/spec/model_spec.h"
#include "spec/hf_names.h"

namespace rpeg {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// The form that transformers 4 and 5 both read.
OrderedJson scaling_json(const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScalingKind::kNone:
      return nullptr;
    case RopeScalingKind::kLinear:
      return {{"factor", scaling.factor}, {"rope_type", "linear"}};
    case RopeScalingKind::kLlama3:
      return {{"factor", scaling.factor},
              {"high_freq_factor", scaling.high_freq_factor},
              {"low_freq_factor", scaling.low_freq_factor},
              {"original_max_position_embeddings", scaling.original_positions},
              {"rope_type", "llama3"}};
  }
  return nullptr;
}

void check_family(const ModelSpec& spec) {
  if (spec.qkv_bias != (spec.family == ModelFamily::kQwen2) ||
      spec.qk_norm != (spec.family == ModelFamily::kQwen3)) {
    throw Error(ErrorKind::kUsage,
                fmt::format("a {} model with qkv_bias: {} and qk_norm: {} has no Hugging Face "
                            "architecture; qwen2 has the biases, qwen3 the norms",
                            to_string(spec.family),
                            spec.qkv_bias,
                            spec.qk_norm));
  }
}

}  // namespace

std::string hf_config_text(const ModelSpec& spec, const HfConfigOptions& options) {
  check_family(spec);
  const HfFamily& family = hf_family(spec.family);
  OrderedJson json;
  json["architectures"] = {options.scalar_head ? family.classifier : family.language_model};
  json["attention_bias"] = false;
  json["attention_dropout"] = 0.0;
  json["head_dim"] = spec.head_dim;
  json["hidden_act"] = "silu";
  json["hidden_size"] = spec.hidden_dim;
  if (options.scalar_head) {
    json["id2label"] = {{"0", "value"}};  // one label: the head has one row
  }
  json["initializer_range"] = spec.initializer_range;
  json["intermediate_size"] = spec.ffn_dim;
  json["max_position_embeddings"] = spec.max_positions;
  json["mlp_bias"] = false;
  json["model_type"] = to_string(spec.family);
  json["num_attention_heads"] = spec.num_heads;
  json["num_hidden_layers"] = spec.layers;
  json["num_key_value_heads"] = spec.num_kv_heads;
  json["rms_norm_eps"] = spec.rms_norm_eps;
  json["rope_scaling"] = scaling_json(spec.rope_scaling);
  json["rope_theta"] = spec.rope_theta;
  if (spec.family != ModelFamily::kLlama) {
    json["sliding_window"] = nullptr;  // max_positions lies within it
  }
  json["tie_word_embeddings"] = spec.tied_embeddings;
  json["torch_dtype"] = options.bf16 ? "bfloat16" : "float32";
  json["use_cache"] = true;
  if (spec.family == ModelFamily::kQwen2 || spec.family == ModelFamily::kQwen3) {
    json["use_sliding_window"] = false;
  }
  json["vocab_size"] = spec.vocab_size;
  return json.dump(2) + "\n";
}

}  // namespace rpeg
