#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rpeg/spec/model_spec.h"

namespace rpeg {

/// One weight tensor of a model as other tools see it.
struct ModelTensor {
  std::string name;                 ///< Hugging Face name
  std::vector<std::int64_t> shape;  ///< (out, in) for matrices
  std::int64_t count = 0;           ///< elements
};

/// All tensors of a Llama-family model in parameter order: embedding, layers, final norm, head. The
/// head is `score.weight` (1, h) when `scalar_head`, else lm_head.weight (absent when tied).
std::vector<ModelTensor> model_tensors(const ModelSpec& spec, bool scalar_head);

}  // namespace rpeg
