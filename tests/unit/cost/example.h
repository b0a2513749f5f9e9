#pragma once

#include "rpeg/cost/cost_model.h"

namespace rpeg {

/// Llama-2-7B (70B, …) as published.
inline ModelSpec model_of(std::int64_t layers,
                          std::int64_t hidden_dim,
                          std::int64_t ffn_dim,
                          std::int64_t vocab_size,
                          std::int64_t num_heads,
                          std::int64_t num_kv_heads) {
  ModelSpec model;
  model.layers = layers;
  model.hidden_dim = hidden_dim;
  model.ffn_dim = ffn_dim;
  model.vocab_size = vocab_size;
  model.head_dim = hidden_dim / num_heads;
  model.num_heads = num_heads;
  model.num_kv_heads = num_kv_heads;
  return model;
}
inline ModelSpec llama_2_7b() { return model_of(32, 4096, 11008, 32000, 32, 32); }
inline ModelSpec llama_2_70b() { return model_of(80, 8192, 28672, 32000, 64, 8); }
inline ModelSpec llama_3_8b() { return model_of(32, 4096, 14336, 128256, 32, 8); }

/// A PPO job of four 7B models: 64 prompts of 128 tokens, responses of up to 512.
inline WorkloadConfig example_config() {
  WorkloadConfig config;
  config.hardware.racks = 2;
  config.hardware.nodes_per_rack = 8;
  config.hardware.gpus_per_node = 4;
  config.models.fill(llama_2_7b());
  config.workload.batch_size = 64;
  config.workload.context_length = 128;
  config.workload.generation_length = 512;
  config.workload.gen_quantiles = {{0.5, 128}, {0.85, 256}, {1.0, 512}};
  config.optimizer.recompute = Recompute::kNone;
  return config;
}

/// GRPO with a verifier and no reference: g_pi and t_pi.
inline WorkloadConfig two_vertices() {
  WorkloadConfig config = example_config();
  config.policy.algorithm = Algorithm::kGrpo;
  config.policy.reward = RewardSource::kVerifier;
  config.policy.kl_reference = false;
  return config;
}

/// Round numbers, network tiers that differ by 10.
inline HardwareProfile example_profile() {
  HardwareProfile profile;
  profile.flops_per_gpu = 400e12;
  profile.memory_per_gpu = 100e9;
  profile.memory_bandwidth = 2e12;
  profile.collective = {{{1e-5, 1e-11}, {2e-5, 1e-10}, {4e-5, 1e-9}}};
  profile.point_to_point = {{{1e-5, 1e-11}, {2e-5, 1e-10}, {4e-5, 1e-9}}};
  profile.gemm_m_half = 240.0;
  profile.decode_bw_eff = 0.6;
  profile.non_gemm_constant = 1e-5;
  profile.non_gemm_scaling = 1e-4;
  profile.non_gemm_batch_cal = 4096.0;
  return profile;
}

inline Vertex generation() { return {"g_pi", Op::kGenerate, ModelRole::kActor}; }
inline Vertex reference() { return {"i_ref", Op::kInferReference, ModelRole::kReference}; }
inline Vertex reward() { return {"i_R", Op::kInferReward, ModelRole::kReward}; }
inline Vertex value() { return {"i_V", Op::kInferValue, ModelRole::kCritic}; }
inline Vertex actor_training() { return {"t_pi", Op::kTrain, ModelRole::kActor}; }
inline Vertex critic_training() { return {"t_V", Op::kTrain, ModelRole::kCritic}; }

/// A plan on the first GPUs of rack 0: nodes 0 … nodes−1, GPUs 0 … gpus−1.
inline VertexPlan plan_on(int nodes, int gpus, Parallelism parallelism, std::int64_t m = 1) {
  return {parallelism, m, {{0, 0}, {0, nodes - 1}, {0, gpus - 1}}};
}

}  // namespace rpeg
