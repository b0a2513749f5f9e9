// rpeg-calibrate --observed: folds what a run observed into a hw.yaml; it starts no ranks.

#include <gmock/gmock.h>

#include <filesystem>

#include "rpeg/base/file.h"
#include "rpeg/profile/hardware_profile.h"
#include "support/command.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

using testing::HasSubstr;

constexpr const char* kObserved = R"(schema: rpeg-observed/1
units: si
iteration_time: {predicted: 1, measured: 2}
observed:
  train: {g: {factor: 2, spread: 0.1, samples: 4}}
)";

TEST(CalibrateObserved, MultipliesTheFactorsIntoTheHardware) {
  const std::filesystem::path folder = test::test_directory();
  std::filesystem::remove_all(folder);
  write_file_atomic(folder / "observed.yaml", kObserved);
  const auto fold = [&](const std::string& hw, const std::string& output) {
    return run_command(std::string(RPEG_BIN_DIR) + "/rpeg-calibrate --observed " +
                       (folder / "observed.yaml").string() + " --hw " + hw + " --output " +
                       (folder / output).string());
  };
  const auto once = fold("builtin:h100-sxm", "once.yaml");
  EXPECT_EQ(once.code, 0) << once.output;
  EXPECT_THAT(once.output, HasSubstr("train, inside a node: x 2 "));
  HardwareProfile expected = load_hardware_profile("builtin:h100-sxm");
  expected.observed.of(WorkClass::kTrain, Tier::kNode) = {2.0, 0.1, 4};
  EXPECT_EQ(load_hardware_profile((folder / "once.yaml").string()), expected);
  EXPECT_EQ(fold((folder / "once.yaml").string(), "twice.yaml").code, 0);
  expected.observed.of(WorkClass::kTrain, Tier::kNode) = {4.0, 0.2, 4};
  EXPECT_EQ(load_hardware_profile((folder / "twice.yaml").string()), expected);
  EXPECT_EQ(fold("absent.yaml", "none.yaml").code, 2);
  EXPECT_FALSE(std::filesystem::exists(folder / "none.yaml"));
}

}  // namespace
}  // namespace rpeg
