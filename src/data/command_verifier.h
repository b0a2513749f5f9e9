#pragma once

#include <span>
#include <vector>

#include "rpeg/data/verifier.h"

namespace rpeg {

/// Runs the external program of a kCommand verifier once for a batch, as `verify_batch` says.
std::vector<double> run_reward_command(const VerifierSpec& spec,
                                       std::span<const VerifierInput> inputs);

}  // namespace rpeg
