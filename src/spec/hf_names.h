#pragma once

#include <array>

#include "rpeg/spec/model_spec.h"

namespace rpeg {

/// How Hugging Face names a family's architectures.
struct HfFamily {
  ModelFamily family;
  const char* model_type;
  const char* language_model;
  const char* classifier;
};

inline constexpr std::array kHfFamilies = {
    HfFamily{ModelFamily::kLlama, "llama", "LlamaForCausalLM", "LlamaForSequenceClassification"},
    HfFamily{ModelFamily::kQwen2, "qwen2", "Qwen2ForCausalLM", "Qwen2ForSequenceClassification"},
    HfFamily{ModelFamily::kQwen3, "qwen3", "Qwen3ForCausalLM", "Qwen3ForSequenceClassification"},
    HfFamily{
        ModelFamily::kMistral, "mistral", "MistralForCausalLM", "MistralForSequenceClassification"},
};

inline const HfFamily& hf_family(ModelFamily family) {
  return kHfFamilies[static_cast<std::size_t>(family)];
}

}  // namespace rpeg
