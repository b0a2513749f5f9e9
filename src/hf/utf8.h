#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rpeg {

/// Bytes of the UTF-8 character that begins at `text[at]`; `text` is valid UTF-8.
std::size_t character_length(std::string_view text, std::size_t at);

/// The code point of the character at `text[at]`; `text` is valid UTF-8.
char32_t code_point(std::string_view text, std::size_t at);

void append_utf8(char32_t code_point, std::string& out);

/// Replaces each maximal ill-formed part by U+FFFD (Unicode standard 3.9, "substitution of maximal
/// subparts"), so that the result is valid UTF-8.
std::string to_valid_utf8(std::string_view bytes);

/// Whether `bytes` is valid UTF-8.
bool is_valid_utf8(std::string_view bytes);

}  // namespace rpeg
