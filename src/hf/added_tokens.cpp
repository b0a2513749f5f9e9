#include "hf/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "hf/utf8.h"

namespace rpeg {
namespace {

/// White_Space of the Unicode character database (PropList.txt).
bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::size_t skip_white_space(std::string_view text, std::size_t at) {
  while (at < text.size() && is_white_space(code_point(text, at))) {
    at += character_length(text, at);
  }
  return at;
}

/// Where the white space that ends at `end` begins, not before `limit`.
std::size_t white_space_start(std::string_view text, std::size_t limit, std::size_t end) {
  while (end > limit) {
    std::size_t start = end - 1;
    while (start > limit && (static_cast<unsigned char>(text[start]) & 0xC0U) == 0x80U) {
      --start;
    }
    if (!is_white_space(code_point(text, start))) {
      break;
    }
    end = start;
  }
  return end;
}

}  // namespace

std::vector<AddedToken> load_added_tokens(const JsonPart& part) {
  std::vector<AddedToken> result;
  for (const JsonPart& token : part.elements()) {
    AddedToken added;
    added.content = token.at("content").text();
    added.id = token.at("id").token_id();
    added.special = token.boolean_or("special", false);
    added.normalized = token.boolean_or("normalized", !added.special);
    added.strip_left = token.boolean_or("lstrip", false);
    added.strip_right = token.boolean_or("rstrip", false);
    if (added.content.empty()) {
      token.at("content").fail("an added token has at least one character");
    }
    if (token.boolean_or("single_word", false)) {
      token.at("single_word")
          .fail(fmt::format("added token '{}': single_word is not supported", added.content));
    }
    result.push_back(std::move(added));
  }
  return result;
}

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens,
                                   bool normalized,
                                   const Normalizer& normalizer) {
  for (AddedToken token : tokens) {
    if (token.normalized != normalized) {
      continue;
    }
    if (normalized) {
      token.content = normalize(normalizer, token.content);
    }
    if (!token.content.empty()) {
      by_first_byte_[static_cast<unsigned char>(token.content[0])].push_back(std::move(token));
    }
  }
  for (auto& candidates : by_first_byte_) {
    std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
      return a.content.size() > b.content.size();
    });
  }
}

const AddedToken* AddedTokenFinder::token_at(std::string_view text, std::size_t at) const {
  for (const AddedToken& token : by_first_byte_[static_cast<unsigned char>(text[at])]) {
    if (text.substr(at).starts_with(token.content)) {
      return &token;
    }
  }
  return nullptr;
}

std::vector<TextPart> AddedTokenFinder::split(std::string_view text) const {
  std::vector<TextPart> result;
  std::size_t text_begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = token_at(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    const std::size_t begin = token->strip_left ? white_space_start(text, text_begin, at) : at;
    at += token->content.size();
    at = token->strip_right ? skip_white_space(text, at) : at;
    if (text_begin < begin) {
      result.push_back({{text_begin, begin}, -1});
    }
    result.push_back({{begin, at}, token->id});
    text_begin = at;
  }
  if (text_begin < text.size()) {
    result.push_back({{text_begin, text.size()}, -1});
  }
  return result;
}

}  // namespace rpeg
