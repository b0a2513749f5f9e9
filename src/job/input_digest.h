#pragma once

#include <filesystem>
#include <string>

namespace rpeg {

/// SHA-256 of an input file; of a *.safetensors file: of its header and size, since hashing weights
/// would take longer than compiling. Throws kUsage when the file cannot be read.
std::string input_digest(const std::filesystem::path& path);

}  // namespace rpeg
