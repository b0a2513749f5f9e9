// Every example configuration is planned by rpeg-optimize with every shipped hardware file.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "rpeg/base/file.h"
#include "rpeg/profile/hardware_profile.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_of(const std::string& kind) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(RPEG_SOURCE_DIR "/configs/" + kind)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(Configs, ShippedHardwareIsReadWithoutAWarning) {
  const auto files = files_of("hw");
  ASSERT_GE(files.size(), 2u);
  for (const fs::path& file : files) {
    SCOPED_TRACE(file.string());
    EXPECT_TRUE(load_hardware_profile(file.string()).warnings.empty());
    // Nothing of the machine that wrote it.
    const std::string text = read_file(file);
    EXPECT_EQ(text.find("host:"), std::string::npos);
    EXPECT_EQ(text.find("date:"), std::string::npos);
  }
}

TEST(Configs, EveryWorkloadIsPlanned) {
  const fs::path directory = test::test_directory();
  fs::remove_all(directory);
  fs::create_directories(directory);
  const auto workloads = files_of("workload");
  ASSERT_GE(workloads.size(), 12u);
  for (const fs::path& workload : workloads) {
    for (const fs::path& hardware : files_of("hw")) {
      SCOPED_TRACE(workload.filename().string() + " on " + hardware.filename().string());
      fs::remove_all(directory / "out");
      const std::string command =
          "cd " + directory.string() + " && " RPEG_BIN_DIR "/rpeg-optimize --evals 100 --config " +
          workload.string() + " --hw " + hardware.string() + " > out.txt 2>&1";
      const int status = std::system(command.c_str());
      ASSERT_TRUE(WIFEXITED(status));
      ASSERT_EQ(WEXITSTATUS(status), 0) << read_file(directory / "out.txt");
      int plans = 0;
      for (const auto& entry : fs::recursive_directory_iterator(directory / "out")) {
        plans += entry.path().filename() == "plan.yaml" ? 1 : 0;
      }
      EXPECT_EQ(plans, 1);
    }
  }
  fs::remove_all(directory);
}

}  // namespace
}  // namespace rpeg
