#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace rpeg {

/// Returns the whole content of a file. Throws kUsage naming the path when it cannot be read.
std::string read_file(const std::filesystem::path& path);

/// Writes `content` to `path` atomically: a temporary file beside it, fsync, rename. Creates
/// missing parent directories, follows a symbolic link, and writes into a device or a pipe. Throws
/// kUsage when `path` is a directory, a parent is not one or is not writable, kRuntime when the
/// disk is full; an existing file at `path` is then untouched.
void write_file_atomic(const std::filesystem::path& path, std::string_view content);

/// Creates `path` and its parents. Throws kUsage, naming the component, when one is a regular file.
void ensure_directory(const std::filesystem::path& path);

/// SHA-256 (FIPS 180-4) of `content` as 64 lower-case hex digits.
std::string sha256(std::string_view content);

}  // namespace rpeg
