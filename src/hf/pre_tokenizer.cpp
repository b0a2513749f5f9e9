#include "hf/pre_tokenizer.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "hf/byte_level.h"
#include "hf/utf8.h"

namespace rpeg {
namespace {

/// How GPT-2 cuts text into words (Radford et al. 2019, the published encoder).
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

ByteLevelStep load_byte_level(const JsonPart& step) {
  ByteLevelStep result;
  result.add_prefix_space = step.boolean_or("add_prefix_space", true);
  if (step.boolean_or("use_regex", true)) {
    result.split.emplace(Regex(kGpt2Pattern));
  }
  return result;
}

MetaspaceStep load_metaspace(const JsonPart& step) {
  MetaspaceStep result;
  result.replacement = step.at("replacement").text();
  if (result.replacement.empty() ||
      character_length(result.replacement, 0) != result.replacement.size()) {
    step.at("replacement").fail("one character was expected");
  }
  result.prepend = load_prepend_scheme(step);
  result.split = step.boolean_or("split", true);
  return result;
}

void append_words(const Pattern& pattern,
                  SplitBehavior behavior,
                  bool invert,
                  const Word& text,
                  std::vector<Word>& out) {
  for (const std::string_view piece : split_text(pattern, behavior, invert, text.text)) {
    const bool is_first = piece.data() == text.text.data();
    out.push_back({std::string(piece), text.at_start && is_first});
  }
}

/// Applies one step to one stretch of text.
struct CutText {
  Word text;
  std::vector<Word>* out;

  void operator()(const ByteLevelStep& step) {
    if (step.add_prefix_space && !text.text.starts_with(' ')) {
      text.text.insert(text.text.begin(), ' ');
    }
    const std::size_t first = out->size();
    if (step.split) {
      append_words(*step.split, SplitBehavior::kIsolated, false, text, *out);
    } else {
      out->push_back(std::move(text));
    }
    for (std::size_t i = first; i < out->size(); ++i) {
      (*out)[i].text = bytes_to_characters((*out)[i].text);
    }
  }

  void operator()(const SplitStep& step) {
    append_words(step.pattern, step.behavior, step.invert, text, *out);
  }

  void operator()(const MetaspaceStep& step) {
    text.text = replace_all(Pattern(" "), text.text, step.replacement);
    const bool prepend = step.prepend == MetaspaceStep::Prepend::kAlways ||
                         (step.prepend == MetaspaceStep::Prepend::kFirst && text.at_start);
    if (prepend && !text.text.starts_with(step.replacement)) {
      text.text.insert(0, step.replacement);
    }
    if (step.split) {
      append_words(Pattern(step.replacement), SplitBehavior::kMergedWithNext, false, text, *out);
    } else {
      out->push_back(std::move(text));
    }
  }
};

}  // namespace

MetaspaceStep::Prepend load_prepend_scheme(const JsonPart& metaspace) {
  if (!metaspace.has("prepend_scheme")) {  // older files
    return metaspace.boolean_or("add_prefix_space", true) ? MetaspaceStep::Prepend::kAlways
                                                          : MetaspaceStep::Prepend::kNever;
  }
  const std::string scheme = metaspace.at("prepend_scheme").text();
  if (scheme == "always") {
    return MetaspaceStep::Prepend::kAlways;
  }
  if (scheme == "first") {
    return MetaspaceStep::Prepend::kFirst;
  }
  if (scheme != "never") {
    metaspace.at("prepend_scheme").fail(fmt::format("'{}' is not always, first or never", scheme));
  }
  return MetaspaceStep::Prepend::kNever;
}

PreTokenizer load_pre_tokenizer(const JsonPart& part) {
  PreTokenizer result;
  for (const JsonPart& step : sequence_members(part, "pretokenizers")) {
    const std::string type = step.at("type").text();
    if (type == "ByteLevel") {
      result.emplace_back(load_byte_level(step));
    } else if (type == "Split") {
      result.emplace_back(SplitStep{load_pattern(step.at("pattern")),
                                    load_split_behavior(step.at("behavior")),
                                    step.boolean_or("invert", false)});
    } else if (type == "Metaspace") {
      result.emplace_back(load_metaspace(step));
    } else if (type == "Digits") {
      const bool individual = step.boolean_or("individual_digits", false);
      result.emplace_back(
          SplitStep{Regex(R"(\p{N})"),
                    individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                    false});
    } else {
      step.fail(fmt::format(
          "pre-tokenizer {} is not supported; ByteLevel, Split, Metaspace, Digits and Sequence are",
          type));
    }
  }
  return result;
}

std::vector<Word> pre_tokenize(const PreTokenizer& pre_tokenizer, Word text) {
  std::vector<Word> words;
  if (!text.text.empty()) {
    words.push_back(std::move(text));
  }
  for (const auto& step : pre_tokenizer) {
    std::vector<Word> next;
    for (Word& word : words) {
      std::visit(CutText{std::move(word), &next}, step);
    }
    words = std::move(next);
  }
  return words;
}

}  // namespace rpeg
