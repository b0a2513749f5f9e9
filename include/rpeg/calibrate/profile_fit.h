#pragma once

/// Fits hw.yaml to measured kernels: one file for all models, by the least mean of
/// |fit − measured| / measured. Pure and deterministic.

#include <string>
#include <vector>

#include "rpeg/calibrate/kernel_measurements.h"
#include "rpeg/profile/hardware_profile.h"

namespace rpeg {

/// What the datasheet says of a GPU; rates in hw.yaml are shares of these.
struct GpuDatasheet {
  std::string name;
  double flop_per_s = 0.0;  ///< dense bf16
  double memory_bytes = 0.0;
  double memory_bytes_per_s = 0.0;
};
/// Of "a100" or "h100"; throws kUsage for another.
GpuDatasheet gpu_datasheet(const std::string& gpu);

/// Errors of a fit over some points.
struct FitError {
  std::int64_t points = 0;
  double mean = 0.0;  ///< of |fit − measured| / measured
  double p95 = 0.0;
};

/// One row of the report.
struct FitRow {
  std::string what;   ///< "matrix products"
  std::string model;  ///< "" for messages and for all models together
  std::string group;  ///< "tp 2", "8 ranks"; "" for all
  FitError error;
};

struct ProfileFit {
  HardwareProfile profile;
  std::vector<FitRow> rows;          ///< the fit against the points it was made from
  std::vector<FitRow> left_out;      ///< each model against a fit to the others
  std::vector<FitRow> one_constant;  ///< non-GEMM work by one set of seconds for all models
};

struct ProfileFitOptions {
  GpuDatasheet gpu;
  /// Bytes/s, by its datasheet, of the port that a GPU has to other nodes; 0: as measured, or
  /// twice the cost inside a node.
  double node_link_bytes_per_s = 0.0;
};

/// Needs at least one model; without messages the links are marked estimated. Throws kUsage when a
/// model has no point at tp = 1.
ProfileFit fit_profile(const KernelMeasurements& measurements, const ProfileFitOptions& options);

/// The errors as tables in Markdown, which is also readable on a terminal.
std::string fit_report(const ProfileFit& fit);

}  // namespace rpeg
