#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hf/json_part.h"

namespace rpeg {

/// Hash of std::string and std::string_view alike, so that look-ups need no copy.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};
using TokenIds = std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>>;

/// A byte-pair-encoding model: which tokens there are and which neighbours merge, in which order.
struct Bpe {
  struct Merge {
    std::int32_t rank = 0;  ///< lower merges first
    std::int32_t id = -1;   ///< of the merged token
  };

  TokenIds vocab;
  std::unordered_map<std::uint64_t, Merge> merges;  ///< by (left id, right id)
  std::vector<std::int32_t> byte_ids;  ///< "<0x00>" … "<0xFF>" with byte fallback, else empty
  std::int32_t unknown_id = -1;        ///< -1: characters without a token are left out
  bool fuse_unknown = false;           ///< neighbouring unknown characters are one token
  bool ignore_merges = false;          ///< a word that is a token is not merged from characters
};

/// Reads the part `model` of a tokenizer.json. Throws kUsage for models other than BPE, dropout,
/// subword prefixes and suffixes, merges of or into tokens that are not in the vocabulary.
Bpe load_bpe(const JsonPart& model);

/// Appends the tokens of one word (valid UTF-8) to `ids`; O(n log n).
void encode_word(const Bpe& bpe, std::string_view word, std::vector<std::int32_t>& ids);

}  // namespace rpeg
