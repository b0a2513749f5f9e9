#include "calibrate_fit.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <string_view>

#include "common.h"
#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/text.h"
#include "rpeg/calibrate/profile_fit.h"

namespace rpeg::apps {
namespace {

struct FitRequest {
  std::string folder;
  std::string gpu;
  std::string output = "hw.yaml";
  std::string report;
  double node_link = 0.0;
};

bool parse_fit_request(int argc, const char* const* argv, FitRequest* request) {
  CLI::App app{
      "Fits hw.yaml to published measurements of GPU kernels, docs/calibration.md.\n"
      "Example: rpeg-calibrate --fit-profile kernel_profiles --gpu a100 --out a100.yaml",
      "rpeg-calibrate"};
  app.add_option("--fit-profile", request->folder, "Folder with the CSV files")->required();
  app.add_option("--gpu", request->gpu, "Prefix of the files")
      ->required()
      ->check(CLI::IsMember({"a100", "h100"}));
  app.add_option("--out,--output", request->output, "The hw.yaml to write (default: hw.yaml)");
  app.add_option("--fit-report", request->report, "Also write the tables of errors, in Markdown");
  app.add_option("--node-link",
                 request->node_link,
                 "Bytes/s of a GPU's port to other nodes by its datasheet, in place of what was "
                 "measured between nodes")
      ->check(above_zero);
  return parse_flags(app, argc, argv);
}

/// The file depends on the inputs and the version alone: no date, no host, no path of this machine.
Provenance fit_provenance(const FitRequest& request, const KernelMeasurements& measurements) {
  Provenance result;
  result.tool = "rpeg-calibrate";
  result.version = version();
  result.command = fmt::format("rpeg-calibrate --fit-profile DIR --gpu {}", request.gpu);
  if (request.node_link > 0.0) {
    result.command += fmt::format(" --node-link {:g}", request.node_link);
  }
  for (const auto& file : measurements.files) {
    result.inputs.emplace_back(file.filename().string(), sha256(read_file(file)));
  }
  return result;
}

/// Measurements in other units than milliseconds and bytes end in values that no reader accepts.
void check_readable(const std::string& text, const FitRequest& request) {
  try {
    parse_hardware_profile(text, request.output);
  } catch (const Error& error) {
    throw Error(ErrorKind::kUsage,
                fmt::format("the fit to {} is not plausible; are its times in milliseconds and its "
                            "sizes in bytes? Nothing was written. It would have been:\n{}",
                            request.folder,
                            error.what()));
  }
}

}  // namespace

bool is_fit_requested(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--fit-profile" || flag.starts_with("--fit-profile=")) {
      return true;
    }
  }
  return false;
}

void fit_and_write(int argc, const char* const* argv) {
  FitRequest request;
  if (!parse_fit_request(argc, argv, &request)) {
    return;
  }
  set_up_logging({});
  check_writable(request.output);
  if (!request.report.empty()) {
    check_writable(request.report);
  }
  const KernelMeasurements measurements = load_kernel_measurements(request.folder, request.gpu);
  const ProfileFit fit =
      fit_profile(measurements,
                  {.gpu = gpu_datasheet(request.gpu), .node_link_bytes_per_s = request.node_link});
  const std::string report = fit_report(fit);
  const std::string text =
      hardware_profile_text(fit.profile, fit_provenance(request, measurements));
  check_readable(text, request);
  write_file_atomic(request.output, text);
  if (!request.report.empty()) {
    write_file_atomic(request.report, report);
  }
  std::cout << report << "\n" << describe(fit.profile) << "\nwrote " << request.output << '\n';
}

}  // namespace rpeg::apps
