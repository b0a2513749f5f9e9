#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "rpeg/job/job_config.h"

namespace rpeg {

/// A file of lines that grows while the job runs; each line is on disk before the next iteration.
class LineFile {
 public:
  /// Starts the file anew, with the folders above it. An empty path: writes nothing. Throws kUsage
  /// when it cannot be opened.
  explicit LineFile(const std::filesystem::path& path);
  /// Appends whole lines. Throws kRuntime when the disk is full.
  void append(const std::string& lines);

 private:
  std::filesystem::path path_;
  std::ofstream out_;
};

/// `metrics_dir / name`, or "" without a metrics folder.
std::filesystem::path metrics_file(const RuntimeConfig& config, const std::string& name);

}  // namespace rpeg
