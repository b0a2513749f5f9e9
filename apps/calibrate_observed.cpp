#include "calibrate_observed.h"

#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string_view>

#include "common.h"
#include "rpeg/base/file.h"
#include "rpeg/profile/hardware_profile.h"

namespace rpeg::apps {

bool is_fold_requested(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--observed" || flag.starts_with("--observed=")) {
      return true;
    }
  }
  return false;
}

void fold_and_write(int argc, const char* const* argv) {
  std::string observed;
  std::string hw;
  std::string output;
  CLI::App app{
      "Folds the factors that a run observed into the hw.yaml that its plan was made with.\n"
      "Example: rpeg-calibrate --observed metrics/observed.yaml --hw hw.yaml --output hw2.yaml",
      "rpeg-calibrate"};
  app.add_option("--observed", observed, "observed.yaml of rpeg-run")->required();
  app.add_option("--hw", hw, "Hardware: rpeg-calibrate's file, or builtin:NAME")->required();
  app.add_option("--out,--output", output, "The hw.yaml to write")->required();
  if (!parse_flags(app, argc, argv)) {
    return;
  }
  set_up_logging({});
  check_writable(output);
  HardwareProfile profile = load_hardware_profile(hw);
  for (const std::string& warning : profile.warnings) {
    spdlog::warn("{}", warning);
  }
  const ObservedRun run = load_observed(observed);
  profile.observed = compound_factors(profile.observed, run.factors);
  std::vector<std::string> inputs{observed};
  if (!hw.starts_with("builtin:")) {
    inputs.push_back(hw);
  }
  write_file_atomic(
      output,
      hardware_profile_text(profile, make_provenance("rpeg-calibrate", argc, argv, inputs)));
  std::cout << describe_factors(profile.observed) << "wrote " << output << '\n';
}

}  // namespace rpeg::apps
