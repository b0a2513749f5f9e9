/// Every <loader>_<rule>.yaml beside this file breaks one rule. Its first line says how the loader
/// must answer: `# expect exit=2 "part of the message"`.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/plan/plan_file.h"
#include "rpeg/profile/hardware_profile.h"
#include "rpeg/spec/workload_config.h"

namespace rpeg {
namespace {

std::vector<std::filesystem::path> case_files() {
  std::vector<std::filesystem::path> files;
  const std::string directory = std::string(RPEG_SOURCE_DIR) + "/tests/error";
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".yaml") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

void load(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const std::string loader = name.substr(0, name.find('_'));
  if (loader == "workload") {
    load_workload_config(path);
  } else if (loader == "hw") {
    load_hardware_profile(path.string());
  } else if (loader == "plan") {
    load_plan_file(path);
  } else {
    FAIL() << name << ": expected a name that starts with workload_, hw_ or plan_";
  }
}

class ErrorCase : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(ErrorCase, IsRefusedWithItsMessage) {
  const std::string text = read_file(GetParam());
  const std::string first_line = text.substr(0, text.find('\n'));
  const std::regex form("# expect exit=([0-9]+) \"(.*)\"");
  std::smatch expected;
  ASSERT_TRUE(std::regex_match(first_line, expected, form)) << first_line;
  try {
    load(GetParam());
    FAIL() << "accepted; expected: " << expected[2];
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(exit_code(error.kind()), std::stoi(expected[1])) << message;
    EXPECT_NE(message.find(expected[2].str()), std::string::npos) << message;
    EXPECT_NE(message.find(GetParam().filename().string() + ":"), std::string::npos) << message;
  }
}

INSTANTIATE_TEST_SUITE_P(Files,
                         ErrorCase,
                         ::testing::ValuesIn(case_files()),
                         [](const auto& parameter) { return parameter.param.stem().string(); });

}  // namespace
}  // namespace rpeg
