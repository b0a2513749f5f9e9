// rpeg-calibrate as a user starts it: mpirun, flags, hw.yaml.

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "rpeg/base/file.h"
#include "rpeg/profile/hardware_profile.h"
#include "support/command.h"
#include "support/mpi_environment.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

CommandResult calibrate(int ranks, const std::string& flags) {
  const std::string command = std::string(kMpiEnvironment) + RPEG_MPIEXEC + " -np " +
                              std::to_string(ranks) + " " RPEG_BIN_DIR "/rpeg-calibrate " + flags;
  return run_command(command, 100);
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

class Calibrate : public testing::Test {
 protected:
  Calibrate() {
    folder_ = test::test_directory();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~Calibrate() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

TEST_F(Calibrate, WritesAPlausibleProfileOfTwoRanks) {
  const std::string config = RPEG_SOURCE_DIR "/configs/demo/copy/workload.yaml";
  const CommandResult outcome =
      calibrate(2, "--quick --config " + config + " --output " + path("new/folder/hw.yaml"));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("rms error"));
  EXPECT_THAT(outcome.output, HasSubstr("[2/9] matrix products"));

  // Loading checks the range of every value; these are about this machine.
  const HardwareProfile profile = load_hardware_profile(path("new/folder/hw.yaml"));
  EXPECT_THAT(profile.warnings, testing::IsEmpty());
  EXPECT_LT(profile.flops_per_gpu, 2e12);
  EXPECT_GT(profile.collective[0].alpha_s, 1e-7);
  EXPECT_GT(profile.point_to_point[0].beta_s_per_byte, 1e-12);
  EXPECT_DOUBLE_EQ(profile.collective[2].alpha_s, 4.0 * profile.collective[0].alpha_s);
  EXPECT_THAT(profile.estimated, Contains("beta_p2p_r"));
  EXPECT_THAT(profile.estimated, Not(Contains("beta_p2p_g")));
  EXPECT_EQ(profile.fit.at("alpha_p2p_g").samples, 7);
  EXPECT_GT(profile.fit.at("flops_per_gpu").r_squared, 0.5);
  EXPECT_EQ(profile.device.at("count_per_node"), "2");
  EXPECT_EQ(profile.device.at("backend"), "cpu");
  const std::string text = read_file(path("new/folder/hw.yaml"));
  EXPECT_THAT(text, HasSubstr(sha256(read_file(config))));
}

TEST_F(Calibrate, MarksAllLinksOfOneRankAsEstimated) {
  const std::string config = RPEG_SOURCE_DIR "/configs/demo/copy/workload.yaml";
  const CommandResult outcome =
      calibrate(1, "--quick --config " + config + " --output " + path("hw.yaml"));
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const HardwareProfile profile = load_hardware_profile(path("hw.yaml"));
  EXPECT_EQ(profile.estimated.size(), 12U);
  EXPECT_DOUBLE_EQ(profile.collective[0].beta_s_per_byte, 1.0 / profile.memory_bandwidth);
}

TEST_F(Calibrate, NeedsAnOutput) {
  const CommandResult outcome = calibrate(2, "--quick");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(count_of(outcome.output, "--output is required"), 1U) << outcome.output;
}

TEST_F(Calibrate, FindsAnUnwritableOutputBeforeItMeasures) {
  std::ofstream(path("file")) << "not a folder";
  const CommandResult outcome = calibrate(2, "--output " + path("file/hw.yaml"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.output, HasSubstr(path("file")));
  EXPECT_THAT(outcome.output, Not(HasSubstr("[1/9]")));
}

TEST_F(Calibrate, RefusesADirectoryAsOutput) {
  const CommandResult outcome = calibrate(1, "--output " + path(""));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("is a directory"));
}

TEST_F(Calibrate, ReportsAMissingConfigurationOnce) {
  const CommandResult outcome =
      calibrate(2, "--config " + path("none.yaml") + " --output " + path("hw.yaml"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(count_of(outcome.output, "rpeg-calibrate: error:"), 1U) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("none.yaml"));
}

TEST_F(Calibrate, RefusesWhatItCannotMeasure) {
  const CommandResult dtype = calibrate(1, "--dtype bf16 --output " + path("hw.yaml"));
  EXPECT_EQ(dtype.code, 2);
  EXPECT_THAT(dtype.output, HasSubstr("fp32"));
  const CommandResult racks = calibrate(1, "--quick --racks 2 --output " + path("hw.yaml"));
  EXPECT_EQ(racks.code, 2);
  EXPECT_THAT(racks.output, HasSubstr("2 equal racks"));
}

TEST_F(Calibrate, AnswersHelp) {
  const CommandResult outcome = calibrate(2, "--help");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(count_of(outcome.output, "Usage:"), 1U) << outcome.output;
}

}  // namespace
}  // namespace rpeg
