#pragma once

/// The words of the workload configuration, in the order of their enumerators.

#include <string>
#include <vector>

namespace rpeg::words {

inline const std::vector<std::string> kAlgorithm = {"ppo", "grpo", "dpo"};
inline const std::vector<std::string> kDpoMode = {"offline", "online"};
inline const std::vector<std::string> kReward = {"model", "verifier"};
inline const std::vector<std::string> kRecompute = {"none", "selective", "full"};
inline const std::vector<std::string> kObjective = {"throughput", "cost"};
inline const std::vector<std::string> kDtype = {"bf16", "fp32"};
/// `none` is the absence of the block.
inline const std::vector<std::string> kRopeScaling = {"none", "linear", "llama3"};

}  // namespace rpeg::words
