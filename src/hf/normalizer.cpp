#include "hf/normalizer.h"

#include <fmt/format.h>

#include "hf/nfc.h"

namespace rpeg {
namespace {

struct ApplyStep {
  std::string_view text;

  std::string operator()(const PrependStep& step) const {
    return text.empty() ? std::string() : step.prefix + std::string(text);
  }
  std::string operator()(const ReplaceStep& step) const {
    return replace_all(step.pattern, text, step.content);
  }
  std::string operator()(const NfcStep&) const { return to_nfc(text); }
};

}  // namespace

Normalizer load_normalizer(const JsonPart& part) {
  Normalizer result;
  for (const JsonPart& step : sequence_members(part, "normalizers")) {
    const std::string type = step.at("type").text();
    if (type == "Prepend") {
      result.emplace_back(PrependStep{step.at("prepend").text()});
    } else if (type == "Replace") {
      result.emplace_back(ReplaceStep{load_pattern(step.at("pattern")), step.at("content").text()});
    } else if (type == "NFC") {
      result.emplace_back(NfcStep{});
    } else {
      step.fail(fmt::format(
          "normalizer {} is not supported; Prepend, Replace, NFC and Sequence are", type));
    }
  }
  return result;
}

std::string normalize(const Normalizer& normalizer, std::string_view text) {
  std::string result(text);
  for (const auto& step : normalizer) {
    result = std::visit(ApplyStep{result}, step);
  }
  return result;
}

}  // namespace rpeg
