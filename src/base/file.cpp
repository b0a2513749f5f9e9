#include "rpeg/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// Closes and removes the temporary file unless it was renamed into place.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& path)
      : path_(fmt::format("{}.{}.tmp", path.string(), ::getpid())),
        descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
    }
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
    if (!path_.empty()) {
      ::unlink(path_.c_str());
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::string_view content, const std::filesystem::path& target) {
    while (!content.empty()) {
      const ssize_t written = ::write(descriptor_, content.data(), content.size());
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written < 0) {
        fail(target);
      }
      content.remove_prefix(static_cast<std::size_t>(written));
    }
    if (::fsync(descriptor_) != 0) {
      fail(target);
    }
  }

  void rename_to(const std::filesystem::path& target) {
    const int closed = ::close(descriptor_);
    descriptor_ = -1;
    if (closed != 0 || ::rename(path_.c_str(), target.c_str()) != 0) {
      fail(target);
    }
    path_.clear();
  }

 private:
  [[noreturn]] static void fail(const std::filesystem::path& target) {
    throw Error(ErrorKind::kRuntime,
                fmt::format("writing {} failed: {}", target.string(), std::strerror(errno)));
  }

  std::string path_;
  int descriptor_;
};

/// For devices and pipes, which a rename would replace by a regular file.
void write_in_place(const std::filesystem::path& path, std::string_view content) {
  std::ofstream out(path, std::ios::binary);
  out << content << std::flush;
  if (!out) {
    throw Error(ErrorKind::kRuntime,
                fmt::format("writing {} failed: {}", path.string(), std::strerror(errno)));
  }
}

using Words = std::array<std::uint32_t, 8>;

constexpr std::array<std::uint32_t, 64> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t rotate_right(std::uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

void compress(Words& state, const unsigned char* block) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 16; ++i) {
    w[i] = (std::uint32_t{block[4 * i]} << 24) | (std::uint32_t{block[4 * i + 1]} << 16) |
           (std::uint32_t{block[4 * i + 2]} << 8) | std::uint32_t{block[4 * i + 3]};
  }
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t a = w[i - 15];
    const std::uint32_t b = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (rotate_right(a, 7) ^ rotate_right(a, 18) ^ (a >> 3)) +
           (rotate_right(b, 17) ^ rotate_right(b, 19) ^ (b >> 10));
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t s1 = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25);
    const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRoundConstants[i] + w[i];
    const std::uint32_t s0 = rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22);
    const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const Words next = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) {
    state[i] += next[i];
  }
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{} is a directory; a file was expected", path.string()));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw Error(ErrorKind::kUsage,
                fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
  }
  std::ostringstream out;
  out << in.rdbuf();
  return std::move(out).str();
}

void ensure_directory(const std::filesystem::path& path) {
  if (path.empty()) {
    return;
  }
  std::filesystem::path prefix;
  for (const auto& part : path) {
    prefix /= part;
    std::error_code ignored;
    if (std::filesystem::exists(prefix, ignored) &&
        !std::filesystem::is_directory(prefix, ignored)) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("cannot create directory {}: {} is a regular file; choose another "
                              "output path or remove that file",
                              path.string(),
                              prefix.string()));
    }
  }
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    throw Error(ErrorKind::kUsage,
                fmt::format("cannot create directory {}: {}", path.string(), error.message()));
  }
}

void write_file_atomic(const std::filesystem::path& path, std::string_view content) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::is_directory(status)) {
    throw Error(ErrorKind::kUsage,
                fmt::format("cannot write {}: it is a directory; name a file", path.string()));
  }
  if (std::filesystem::is_other(status)) {
    write_in_place(path, content);
    return;
  }
  ensure_directory(path.parent_path());
  const std::filesystem::path target =
      std::filesystem::is_symlink(path, ignored) ? std::filesystem::weakly_canonical(path) : path;
  TemporaryFile file(target);
  file.write(content, path);
  file.rename_to(target);
}

std::string sha256(std::string_view content) {
  Words state = {0x6a09e667,
                 0xbb67ae85,
                 0x3c6ef372,
                 0xa54ff53a,
                 0x510e527f,
                 0x9b05688c,
                 0x1f83d9ab,
                 0x5be0cd19};
  std::string tail(content.substr(content.size() / 64 * 64));
  for (std::size_t i = 0; i + 64 <= content.size(); i += 64) {
    compress(state, reinterpret_cast<const unsigned char*>(content.data() + i));
  }
  tail.push_back('\x80');
  while (tail.size() % 64 != 56) {
    tail.push_back('\0');
  }
  const std::uint64_t bits = std::uint64_t{content.size()} * 8;
  for (int shift = 56; shift >= 0; shift -= 8) {
    tail.push_back(static_cast<char>((bits >> shift) & 0xff));
  }
  for (std::size_t i = 0; i < tail.size(); i += 64) {
    compress(state, reinterpret_cast<const unsigned char*>(tail.data() + i));
  }
  std::string hex;
  for (const std::uint32_t word : state) {
    hex += fmt::format("{:08x}", word);
  }
  return hex;
}

}  // namespace rpeg
