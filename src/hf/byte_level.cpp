#include "hf/byte_level.h"

#include <array>

#include "hf/utf8.h"

namespace rpeg {
namespace {

constexpr bool is_printable(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

constexpr std::array<char32_t, 256> characters_of_bytes() {
  std::array<char32_t, 256> result{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    result[byte] = is_printable(byte) ? char32_t{byte} : next++;
  }
  return result;
}

constexpr std::array<char32_t, 256> kCharacterOfByte = characters_of_bytes();
constexpr std::size_t kCharacters = 0x100 + 68;

/// Byte of each character below `kCharacters`, or -1.
constexpr std::array<int, kCharacters> bytes_of_characters() {
  std::array<int, kCharacters> result{};
  for (int& byte : result) {
    byte = -1;
  }
  for (int byte = 0; byte < 256; ++byte) {
    result[kCharacterOfByte[static_cast<std::size_t>(byte)]] = byte;
  }
  return result;
}

constexpr std::array<int, kCharacters> kByteOfCharacter = bytes_of_characters();

}  // namespace

std::string bytes_to_characters(std::string_view bytes) {
  std::string result;
  result.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    append_utf8(kCharacterOfByte[static_cast<unsigned char>(byte)], result);
  }
  return result;
}

std::optional<std::string> characters_to_bytes(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); at += character_length(text, at)) {
    const char32_t character = code_point(text, at);
    if (character >= kCharacters || kByteOfCharacter[character] < 0) {
      return std::nullopt;
    }
    result.push_back(static_cast<char>(kByteOfCharacter[character]));
  }
  return result;
}

}  // namespace rpeg
