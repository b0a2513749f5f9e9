#pragma once

/// Random valid inputs for round-trip tests.

#include "rpeg/base/rng.h"
#include "rpeg/spec/workload_config.h"

namespace rpeg {

/// A workload configuration that the loader accepts, every field away from its default now and
/// then; `output` stays empty.
WorkloadConfig random_workload_config(Rng& rng);

}  // namespace rpeg
