#pragma once

#include <string>
#include <vector>

#include "rpeg/profile/hardware_profile.h"
#include "rpeg/spec/workload_config.h"

// Jobs on which the search is measured.

namespace rpeg::bench {

struct Job {
  std::string name;
  WorkloadConfig config;
  HardwareProfile profile;
};

/// The published sample (PPO, 7B, 32 GPUs), and six jobs of 7B to 70B on 32 to 128 GPUs, at least
/// 512 sequences each, the actor's staleness 0 or 1.
std::vector<Job> search_jobs();

/// GRPO of a 70B model on 32,768 GPUs: 64 racks of 64 nodes of 8, or one rack of 4096 nodes.
Job largest_job(bool one_rack);

}  // namespace rpeg::bench
