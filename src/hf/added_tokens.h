#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hf/json_part.h"
#include "hf/normalizer.h"
#include "rpeg/hf/regex.h"

namespace rpeg {

/// A token that is looked for in the text itself, before BPE sees it.
struct AddedToken {
  std::string content;
  std::int32_t id = -1;
  bool special = false;     ///< left out of decoded text on request
  bool normalized = false;  ///< looked for after normalisation, else before
  bool strip_left = false;  ///< takes the white space before it along
  bool strip_right = false;
};

/// Reads the part `added_tokens` of a tokenizer.json. Throws kUsage for `single_word` tokens.
std::vector<AddedToken> load_added_tokens(const JsonPart& part);

/// A stretch of text: an added token, or what lies between two.
struct TextPart {
  TextSpan span;
  std::int32_t id = -1;  ///< -1: text
};

/// Finds added tokens in texts, the leftmost first and of these the longest.
class AddedTokenFinder {
 public:
  /// Looks for the tokens whose `normalized` is the given; those after normalisation are themselves
  /// normalised first.
  AddedTokenFinder(const std::vector<AddedToken>& tokens,
                   bool normalized,
                   const Normalizer& normalizer);

  /// The parts of `text` in order, empty ones left out.
  std::vector<TextPart> split(std::string_view text) const;

 private:
  const AddedToken* token_at(std::string_view text, std::size_t at) const;

  std::array<std::vector<AddedToken>, 256> by_first_byte_;  ///< longest first
};

}  // namespace rpeg
