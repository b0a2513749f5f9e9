#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "hf/json_part.h"
#include "hf/pattern.h"

namespace rpeg {

/// GPT-2's step: an optional leading space, cutting by GPT-2's pattern, bytes as characters.
struct ByteLevelStep {
  bool add_prefix_space = true;
  std::optional<Pattern> split;  ///< GPT-2's pattern, or no cutting
};
/// Cuts at matches.
struct SplitStep {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
};
/// SentencePiece's step: spaces become a visible character, which begins each word.
struct MetaspaceStep {
  enum class Prepend { kAlways, kFirst, kNever };
  std::string replacement;
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};

/// Steps that cut a normalised text into words, which BPE never merges across.
using PreTokenizer = std::vector<std::variant<ByteLevelStep, SplitStep, MetaspaceStep>>;

/// Reads the part `pre_tokenizer` of a tokenizer.json (ByteLevel, Split, Metaspace, Digits,
/// Sequence or null). Throws kUsage naming any other.
PreTokenizer load_pre_tokenizer(const JsonPart& part);

/// A stretch of text on its way to becoming words.
struct Word {
  std::string text;
  bool at_start = false;  ///< the encoded text begins here
};

/// The words of one stretch of normalised text; empty ones are left out.
std::vector<Word> pre_tokenize(const PreTokenizer& pre_tokenizer, Word text);

/// How a Metaspace part, pre-tokenizer or decoder, treats the start of a text.
MetaspaceStep::Prepend load_prepend_scheme(const JsonPart& metaspace);

}  // namespace rpeg
