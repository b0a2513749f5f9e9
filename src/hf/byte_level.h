#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rpeg {

/// Byte-level BPE writes each byte as one printable character (GPT-2, Radford et al. 2019):
/// printable Latin-1 bytes as themselves, the other 68 as U+0100, U+0101, … in order. Returns the
/// text so written.
std::string bytes_to_characters(std::string_view bytes);

/// The inverse; nullopt when a character stands for no byte. `text` is valid UTF-8.
std::optional<std::string> characters_to_bytes(std::string_view text);

}  // namespace rpeg
