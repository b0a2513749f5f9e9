#pragma once

#include <string>
#include <vector>

#include "rpeg/base/rng.h"
#include "rpeg/profile/hardware_profile.h"
#include "rpeg/spec/workload_config.h"

// Jobs whose plans can all be tried.

namespace rpeg::test {

struct SmallSpace {
  std::string name;
  WorkloadConfig config;
  HardwareProfile profile;
};

/// PPO, GRPO and DPO on 2 to 8 GPUs, with fusion, staleness and sharing on.
std::vector<SmallSpace> small_spaces();

/// A job with a few vertices on a few GPUs, every algorithm and structure now and then, on hardware
/// in which now compute, now memory, now the network decides.
SmallSpace random_small_space(Rng& rng);

}  // namespace rpeg::test
