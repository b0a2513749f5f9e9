#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace rpeg::test {

/// Removes this process's folder when the process ends.
struct ProcessDirectory {
  std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / ("rpeg_test_" + std::to_string(::getpid()));
  ProcessDirectory() { std::filesystem::create_directories(path); }
  ~ProcessDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  ProcessDirectory(const ProcessDirectory&) = delete;
  ProcessDirectory& operator=(const ProcessDirectory&) = delete;
};

/// A folder of the running test that no other test or process uses, removed at the end.
inline std::filesystem::path test_directory() {
  static const ProcessDirectory process;
  std::string name = "no_test";
  if (const auto* test = testing::UnitTest::GetInstance()->current_test_info(); test != nullptr) {
    name = std::string(test->test_suite_name()) + "." + test->name();
  }
  for (char& letter : name) {
    if (letter == '/') {
      letter = '_';
    }
  }
  const std::filesystem::path path = process.path / name;
  std::filesystem::create_directories(path);
  return path;
}

}  // namespace rpeg::test
