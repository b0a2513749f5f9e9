#include "hf/utf8.h"

namespace rpeg {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

struct Prefix {
  std::size_t length = 0;  ///< bytes of the longest well-formed prefix of a character, at least 1
  bool complete = false;
};

/// Reads one character by table 3-7 of the Unicode standard (well-formed UTF-8 byte sequences).
Prefix read_character(std::string_view text, std::size_t at) {
  const unsigned lead = byte_at(text, at);
  if (lead < 0x80) {
    return {1, true};
  }
  if (lead < 0xC2 || lead > 0xF4) {
    return {1, false};
  }
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i) {
    if (at + i >= text.size() || byte_at(text, at + i) < low || byte_at(text, at + i) > high) {
      return {i, false};
    }
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

}  // namespace

std::size_t character_length(std::string_view text, std::size_t at) {
  return read_character(text, at).length;
}

char32_t code_point(std::string_view text, std::size_t at) {
  const std::size_t length = character_length(text, at);
  if (length == 1) {
    return byte_at(text, at);
  }
  char32_t result = byte_at(text, at) & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    result = (result << 6) | (byte_at(text, at + i) & 0x3FU);
  }
  return result;
}

void append_utf8(char32_t c, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string result;
  result.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const Prefix prefix = read_character(bytes, at);
    if (prefix.complete) {
      result.append(bytes.substr(at, prefix.length));
    } else {
      append_utf8(0xFFFD, result);
    }
    at += prefix.length;
  }
  return result;
}

bool is_valid_utf8(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const Prefix prefix = read_character(bytes, at);
    if (!prefix.complete) {
      return false;
    }
    at += prefix.length;
  }
  return true;
}

}  // namespace rpeg
