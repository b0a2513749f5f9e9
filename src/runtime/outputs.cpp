#include "runtime/outputs.h"

#include <fmt/format.h>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"

namespace rpeg {

LineFile::LineFile(const std::filesystem::path& path) : path_(path) {
  if (path_.empty()) {
    return;
  }
  if (path_.has_parent_path()) {
    ensure_directory(path_.parent_path());
  }
  out_.open(path_, std::ios::trunc);
  if (!out_) {
    throw Error(ErrorKind::kUsage, fmt::format("cannot write {}", path_.string()));
  }
}

void LineFile::append(const std::string& lines) {
  if (path_.empty()) {
    return;
  }
  out_ << lines << std::flush;
  if (!out_) {
    throw Error(ErrorKind::kRuntime,
                fmt::format("cannot write {}: is the disk full?", path_.string()));
  }
}

std::filesystem::path metrics_file(const RuntimeConfig& config, const std::string& name) {
  return config.metrics_dir.empty() ? std::filesystem::path() : config.metrics_dir / name;
}

}  // namespace rpeg
