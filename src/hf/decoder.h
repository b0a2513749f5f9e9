#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "hf/json_part.h"
#include "hf/normalizer.h"
#include "hf/pre_tokenizer.h"

namespace rpeg {

/// Adjacent tokens "<0x..>" become the text of their bytes, each byte U+FFFD where they are not
/// UTF-8.
struct ByteFallbackDecode {};
/// All tokens become one.
struct FuseDecode {};
/// Takes up to `start` and `stop` times `content` off the ends of every token.
struct StripDecode {
  std::string content;  ///< one character
  std::size_t start = 0;
  std::size_t stop = 0;
};
/// Characters that stand for bytes become the bytes' text.
struct ByteLevelDecode {};
/// The visible space becomes a space, or nothing in the first token.
struct MetaspaceDecode {
  std::string replacement;
  bool drop_first = true;
};

/// Steps that turn the tokens of a sequence into text.
struct Decoder {
  std::vector<std::variant<ReplaceStep,
                           ByteFallbackDecode,
                           FuseDecode,
                           StripDecode,
                           ByteLevelDecode,
                           MetaspaceDecode>>
      steps;
  std::string separator;  ///< between what is left of the tokens; " " in a file without decoder
};

/// Reads the part `decoder` of a tokenizer.json (Replace, ByteFallback, Fuse, Strip, ByteLevel,
/// Metaspace, Sequence or null). Throws kUsage naming any other.
Decoder load_decoder(const JsonPart& part);

std::string decode_tokens(const Decoder& decoder, std::vector<std::string> tokens);

}  // namespace rpeg
