#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hf/json_part.h"
#include "hf/pattern.h"

namespace rpeg {

struct PrependStep {
  std::string prefix;
};
struct ReplaceStep {
  Pattern pattern;
  std::string content;
};
struct NfcStep {};

/// Steps that rewrite a text before it is cut into words.
using Normalizer = std::vector<std::variant<PrependStep, ReplaceStep, NfcStep>>;

/// Reads the part `normalizer` of a tokenizer.json (Prepend, Replace, NFC, Sequence or null).
/// Throws kUsage naming any other.
Normalizer load_normalizer(const JsonPart& part);

std::string normalize(const Normalizer& normalizer, std::string_view text);

}  // namespace rpeg
