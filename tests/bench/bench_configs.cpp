#include "bench_configs.h"

namespace rpeg::bench {
namespace {

ModelSpec llama(std::int64_t layers,
                std::int64_t hidden,
                std::int64_t ffn,
                std::int64_t heads,
                std::int64_t kv_heads,
                std::int64_t vocabulary = 32000) {
  ModelSpec model;
  model.layers = layers;
  model.hidden_dim = hidden;
  model.ffn_dim = ffn;
  model.vocab_size = vocabulary;
  model.head_dim = 128;
  model.num_heads = heads;
  model.num_kv_heads = kv_heads;
  return model;
}

ModelSpec llama_7b() { return llama(32, 4096, 11008, 32, 32); }
ModelSpec llama_13b() { return llama(40, 5120, 13824, 40, 40); }
ModelSpec llama_34b() { return llama(48, 8192, 22016, 64, 8); }
ModelSpec llama_70b() { return llama(80, 8192, 28672, 64, 8); }
ModelSpec llama3_8b() { return llama(32, 4096, 14336, 32, 8, 128256); }

void set_model(WorkloadConfig& config, ModelRole role, const ModelSpec& model) {
  config.models[static_cast<std::size_t>(role)] = model;
}

WorkloadConfig job(int nodes, const ModelSpec& actor) {
  WorkloadConfig config;
  config.hardware.nodes_per_rack = nodes;
  config.hardware.gpus_per_node = 8;
  set_model(config, ModelRole::kActor, actor);
  config.workload.context_length = 512;
  config.workload.generation_length = 1024;
  config.workload.gen_quantiles = {{0.5, 300.0}, {0.85, 600.0}, {1.0, 1024.0}};
  config.workload.batch_size = 512;
  config.optimizer.staleness_actor = {0, 1};
  config.seed = 1;
  return config;
}

WorkloadConfig ppo(int nodes, const ModelSpec& actor, const ModelSpec& critic) {
  WorkloadConfig config = job(nodes, actor);
  config.policy.algorithm = Algorithm::kPpo;
  config.policy.minibatches = 4;
  set_model(config, ModelRole::kCritic, critic);
  set_model(config, ModelRole::kReward, critic);
  return config;
}

WorkloadConfig grpo(int nodes, const ModelSpec& actor, std::int64_t prompts, std::int64_t longest) {
  WorkloadConfig config = job(nodes, actor);
  config.policy.algorithm = Algorithm::kGrpo;
  config.policy.reward = RewardSource::kVerifier;
  config.workload.batch_size = prompts;
  config.workload.samples_per_prompt = 8;
  config.workload.generation_length = longest;
  const auto end = static_cast<double>(longest);
  config.workload.gen_quantiles = {
      {0.25, 0.1 * end}, {0.5, 0.22 * end}, {0.75, 0.4 * end}, {0.9, 0.65 * end}, {1.0, end}};
  return config;
}

WorkloadConfig sample() {
  WorkloadConfig config = ppo(8, llama_7b(), llama_7b());
  config.hardware.gpus_per_node = 4;
  config.policy.minibatches = 1;
  config.workload.batch_size = 64;
  config.workload.context_length = 128;
  config.workload.generation_length = 512;
  config.workload.gen_quantiles = {{0.5, 128.0}, {0.85, 256.0}, {1.0, 512.0}};
  return config;
}

}  // namespace

std::vector<Job> search_jobs() {
  const HardwareProfile h100 = load_hardware_profile("builtin:h100-sxm");
  const HardwareProfile a100 = load_hardware_profile("builtin:a100-80g-sxm");
  WorkloadConfig shared = ppo(8, llama_13b(), llama_13b());
  shared.policy.allow_ac_share = true;
  WorkloadConfig dpo = grpo(8, llama3_8b(), 512, 2048);
  dpo.policy.algorithm = Algorithm::kDpo;
  dpo.policy.dpo_mode = DpoMode::kOnline;
  dpo.workload.samples_per_prompt = 4;
  WorkloadConfig two_racks = ppo(4, llama_13b(), llama_7b());
  two_racks.hardware.racks = 2;
  two_racks.optimizer.staleness_critic = {0, 1};
  return {{"sample_ppo_7b_32", sample(), h100},
          {"ppo_7b_32", ppo(4, llama_7b(), llama_7b()), a100},
          {"ppo_13b_shared_64", shared, h100},
          {"ppo_34b_64", ppo(8, llama_34b(), llama_7b()), h100},
          {"ppo_70b_128", ppo(16, llama_70b(), llama_7b()), h100},
          {"grpo_8b_64", grpo(8, llama3_8b(), 512, 8192), h100},
          {"dpo_online_8b_64", dpo, h100},
          {"grpo_34b_96", grpo(12, llama_34b(), 512, 4096), a100},
          {"ppo_13b_2x32", two_racks, h100}};
}

Job largest_job(bool one_rack) {
  WorkloadConfig config = grpo(64, llama_70b(), 4096, 8192);
  config.hardware.racks = one_rack ? 1 : 64;
  config.hardware.nodes_per_rack = one_rack ? 4096 : 64;
  return {"grpo_70b_32768", config, load_hardware_profile("builtin:h100-sxm")};
}

}  // namespace rpeg::bench
