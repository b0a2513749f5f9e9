#pragma once

/// Module `calibrate`: times this machine and fits the parameters of the cost model to what it saw
/// (docs/calibration.md). All ranks of a job call `calibrate` together; it measures with the very
/// kernels, model and collectives that rpeg-run uses. fit.h holds the fits, which are pure.

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "rpeg/comm/comm.h"
#include "rpeg/profile/hardware_profile.h"
#include "rpeg/spec/workload_config.h"

namespace rpeg {

/// What the measurements are shaped like. CPU rates depend on it: a small model lives in caches.
struct CalibrationWorkload {
  ModelSpec model;
  std::int64_t context_length = 0;   ///< prompt tokens
  std::int64_t response_length = 0;  ///< most response tokens
  std::int64_t sequences = 0;        ///< that one rank generates at a time
};

/// A model of width 1024, whose layers exceed the caches; 8 sequences of 256 + 256 tokens.
CalibrationWorkload default_calibration_workload();

/// The actor of a job with the batch shared out over all its GPUs.
CalibrationWorkload calibration_workload(const WorkloadConfig& config);

struct CalibrationOptions {
  CalibrationWorkload workload;
  bool quick = false;            ///< seconds instead of a minute or two; coarser
  int racks = 0;                 ///< equal runs of nodes; 0: from `topology_address`
  std::string topology_address;  ///< of this rank, as Slurm gives it; may be empty
};

/// Called before each measurement, on every rank.
struct CalibrationStep {
  int index = 0;       ///< stage, from 1
  int count = 0;       ///< stages
  std::string stage;   ///< "matrix products"
  std::string detail;  ///< "256 rows", may be empty
};
using CalibrationProgress = std::function<void(const CalibrationStep&)>;

/// Measures and fits. Compute and memory are timed on all ranks at once and averaged over them;
/// links by tier, where the job spans it. Tiers that it does not span, and everything else that was
/// derived, are named in `estimated`. Every rank returns the same profile. Throws kRuntime when a
/// rank stops answering.
HardwareProfile calibrate(Comm& world,
                          const CalibrationOptions& options,
                          const CalibrationProgress& progress);

/// A table for people: every fitted group of parameters with its values, samples, relative RMS
/// residual and R².
std::string fit_table(const HardwareProfile& profile);

}  // namespace rpeg
