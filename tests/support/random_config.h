#pragma once

/// Random valid inputs for round-trip tests.

#include "rpeg/base/rng.h"
#include "rpeg/spec/workload_config.h"

namespace rpeg {

/// A workload configuration that the loader accepts, every field away from its default now and
/// then; `output` stays empty.
WorkloadConfig random_workload_config(Rng& rng);

/// A configuration of sizes that nobody has, up to the limits of the loader (which may refuse it):
/// a million GPUs or one, models of one layer or a hundred thousand, and so on.
WorkloadConfig extreme_workload_config(Rng& rng);

}  // namespace rpeg
