// Times the machine that mpirun started it on and writes hw.yaml.

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>

#include "calibrate_fit.h"
#include "calibrate_observed.h"
#include "common.h"
#include "kernel_threads.h"
#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/calibrate/calibrate.h"
#include "rpeg/comm/mpi.h"

namespace rpeg::apps {
namespace {

struct Request {
  std::string output;
  std::string config;
  std::string dtype = "fp32";
  bool quick = false;
  bool debug = false;
  int racks = 0;
};

/// Returns nothing when --help or --version was answered.
std::optional<Request> parse_request(int argc, const char* const* argv) {
  CLI::App app{
      "Measures compute, memory and links of the ranks that mpirun starts and fits the "
      "hardware parameters that rpeg-optimize plans with.",
      "rpeg-calibrate"};
  Request request;
  app.add_option("--output", request.output, "The hw.yaml to write")->required();
  app.add_option("--config",
                 request.config,
                 "Workload configuration: measure with its actor's shapes, lengths and batch "
                 "(default: a model of width 1024)");
  app.add_flag("--quick", request.quick, "Measure for under 30 seconds instead of up to 3 minutes");
  app.add_option("--racks",
                 request.racks,
                 "Racks, as equal runs of nodes (default: Slurm's topology, or one rack)")
      ->check(apps::above_zero);
  app.add_option("--dtype", request.dtype, "Element type; the CPU backend computes in fp32")
      ->check(CLI::IsMember({"fp32"}));
  app.add_flag("--debug", request.debug, "Log every measured point");
  app.footer(
      "Examples:\n"
      "  mpirun -np 2 rpeg-calibrate --quick --config workload.yaml --output hw.yaml\n"
      "  srun --mpi=pmix rpeg-calibrate --output hw.yaml\n"
      "To fit published measurements of GPU kernels instead of measuring this machine:\n"
      "  rpeg-calibrate --fit-profile DIR --help\n"
      "To fold what a run observed into the hw.yaml of its plan:\n"
      "  rpeg-calibrate --observed FILE --help");
  if (!parse_flags(app, argc, argv)) {
    return std::nullopt;
  }
  return request;
}

CalibrationOptions make_options(const Request& request) {
  CalibrationOptions options;
  options.workload = request.config.empty()
                         ? default_calibration_workload()
                         : calibration_workload(load_workload_config(request.config));
  options.quick = request.quick;
  options.racks = request.racks;
  const char* address = std::getenv("SLURM_TOPOLOGY_ADDR");
  options.topology_address = address != nullptr ? address : "";
  return options;
}

/// On a terminal one line that is rewritten, elsewhere a line per stage; on rank 0 only.
CalibrationProgress show_progress(int rank) {
  if (rank != 0) {
    return [](const CalibrationStep&) {};
  }
  if (is_interactive()) {
    return [](const CalibrationStep& step) {
      std::cerr << fmt::format(
                       "\r\033[K[{}/{}] {} {}", step.index, step.count, step.stage, step.detail)
                << std::flush;
    };
  }
  return [](const CalibrationStep& step) {
    if (step.detail.empty()) {
      spdlog::info("[{}/{}] {}", step.index, step.count, step.stage);
    } else {
      spdlog::debug("[{}/{}] {}, {}", step.index, step.count, step.stage, step.detail);
    }
  };
}

/// Rank 0 reads flags and files first and alone: a fault is then reported once. Returns nothing
/// when there is nothing to do.
std::optional<Request> agree_on_request(Comm& world, int argc, const char* const* argv) {
  std::optional<Request> request;
  if (world.rank() == 0) {
    request = parse_request(argc, argv);
    if (request) {
      make_options(*request);
      apps::check_writable(request->output);
    }
  }
  const std::byte mine{request.has_value()};
  const auto go = world.all_gather(std::span(&mine, 1));
  if (go[0][0] == std::byte{0}) {
    return std::nullopt;
  }
  return world.rank() == 0 ? request : parse_request(argc, argv);
}

void calibrate_and_write(Comm& world, int argc, const char* const* argv) {
  const auto request = agree_on_request(world, argc, argv);
  if (!request) {
    return;
  }
  set_up_logging({.debug = request->debug, .quiet = world.rank() != 0, .log_file = ""});
  share_cores(world);
  const CalibrationOptions options = make_options(*request);
  const HardwareProfile profile = calibrate(world, options, show_progress(world.rank()));
  if (world.rank() != 0) {
    return;
  }
  if (is_interactive()) {
    std::cerr << "\r\033[K";
  }
  const std::vector<std::string> inputs =
      request->config.empty() ? std::vector<std::string>{} : std::vector{request->config};
  write_file_atomic(
      request->output,
      hardware_profile_text(profile, make_provenance("rpeg-calibrate", argc, argv, inputs)));
  std::cout << fit_table(profile) << "\n"
            << describe(profile) << "\nwrote " << request->output << '\n';
}

}  // namespace
}  // namespace rpeg::apps

int main(int argc, char** argv) {
  return rpeg::apps::run_main("rpeg-calibrate", [&] {
    if (rpeg::apps::is_fold_requested(argc, argv)) {
      rpeg::apps::fold_and_write(argc, argv);
      return;
    }
    if (rpeg::apps::is_fit_requested(argc, argv)) {
      rpeg::apps::fit_and_write(argc, argv);
      return;
    }
    rpeg::MpiSession session;
    const auto world = session.world();
    rpeg::apps::calibrate_and_write(*world, argc, argv);
  });
}
