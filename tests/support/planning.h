#pragma once

#include "rpeg/profile/hardware_profile.h"
#include "rpeg/spec/workload_config.h"

namespace rpeg::test {

/// A model of 4 layers, 64 wide, 4 heads: every tp up to 4 and pp up to 4 is valid.
inline ModelSpec small_model() {
  ModelSpec model;
  model.layers = 4;
  model.hidden_dim = 64;
  model.ffn_dim = 128;
  model.vocab_size = 256;
  model.head_dim = 16;
  model.num_heads = 4;
  model.num_kv_heads = 4;
  return model;
}

/// A PPO job with four models on racks × nodes × GPUs, 8 prompts, 2 samples each.
inline WorkloadConfig small_ppo(int racks, int nodes, int gpus) {
  WorkloadConfig config;
  config.hardware.racks = racks;
  config.hardware.nodes_per_rack = nodes;
  config.hardware.gpus_per_node = gpus;
  for (auto& model : config.models) model = small_model();
  config.workload.batch_size = 8;
  config.workload.samples_per_prompt = 2;
  config.workload.context_length = 16;
  config.workload.generation_length = 32;
  config.policy.algorithm = Algorithm::kPpo;
  config.seed = 1;
  return config;
}

/// A GRPO job with a verifier and a KL reference (g_pi, i_ref, t_pi): 4 prompts, 2 samples each.
inline WorkloadConfig small_grpo(int gpus) {
  WorkloadConfig config = small_ppo(1, 1, gpus);
  config.policy.algorithm = Algorithm::kGrpo;
  config.policy.reward = RewardSource::kVerifier;
  config.models[static_cast<std::size_t>(ModelRole::kCritic)].reset();
  config.models[static_cast<std::size_t>(ModelRole::kReward)].reset();
  config.workload.batch_size = 4;
  return config;
}

/// A slow device on which compute, not latency, decides for the small model.
inline HardwareProfile small_hardware() {
  HardwareProfile profile;
  profile.flops_per_gpu = 1e9;
  profile.memory_per_gpu = 1e9;
  profile.memory_bandwidth = 1e9;
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    const double slower = tier == 0 ? 1.0 : 10.0 * static_cast<double>(tier);
    profile.collective[tier] = {1e-5 * slower, 1e-9 * slower};
    profile.point_to_point[tier] = {1e-5 * slower, 1e-9 * slower};
  }
  profile.gemm_m_half = 4.0;
  profile.decode_bw_eff = 0.7;
  profile.non_gemm_constant = 1e-6;
  profile.non_gemm_scaling = 1e-5;
  profile.non_gemm_batch_cal = 64.0;
  return profile;
}

}  // namespace rpeg::test
