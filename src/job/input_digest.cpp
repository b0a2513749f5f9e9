#include "job/input_digest.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/job/compile.h"

namespace rpeg {
namespace {

/// The header of a safetensors file (an 8-byte little-endian length and that many bytes), followed
/// by the file's size as text.
std::string header_and_size(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string head(8, '\0');
  in.read(head.data(), 8);
  if (!in) {
    throw Error(ErrorKind::kUsage, "cannot read the header", path.string());
  }
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) {
    length = length * 256 + static_cast<unsigned char>(head[i]);
  }
  const std::uint64_t size = std::filesystem::file_size(path);
  head.resize(8 + std::min(length, size - 8));
  in.read(head.data() + 8, static_cast<std::streamsize>(head.size() - 8));
  return head + fmt::format("{}", size);
}

}  // namespace

std::string input_digest(const std::filesystem::path& path) {
  return sha256(path.extension() == ".safetensors" ? header_and_size(path) : read_file(path));
}

void check_inputs(const Job& job) {
  for (const auto& [path, digest] : job.input_digests) {
    if (input_digest(path) != digest) {
      throw Error(
          ErrorKind::kUsage,
          fmt::format("{} has changed since the job was compiled; run rpeg-jobplan again", path));
    }
  }
}

}  // namespace rpeg
