#include "small_spaces.h"

#include "support/planning.h"
#include "support/random_factors.h"

namespace rpeg::test {
namespace {

constexpr auto kCritic = static_cast<std::size_t>(ModelRole::kCritic);

/// Slow links: it pays to take vertices apart, but not as the baselines do it.
HardwareProfile slow_links() {
  HardwareProfile profile = small_hardware();
  profile.collective[0] = {2e-3, 1e-7};
  return profile;
}

WorkloadConfig limited(WorkloadConfig config, int max_tp, int max_pp) {
  config.optimizer.max_tp = max_tp;
  config.optimizer.max_pp = max_pp;
  return config;
}

WorkloadConfig with_quantiles(WorkloadConfig config) {
  config.workload.gen_quantiles = {{0.5, 6.0}, {0.8, 12.0}, {1.0, 32.0}};
  return config;
}

WorkloadConfig ppo(int gpus) {
  WorkloadConfig config = small_ppo(1, 1, gpus);
  config.policy.reward = RewardSource::kVerifier;
  config.policy.kl_reference = false;
  config.workload.batch_size = 4;
  config.workload.samples_per_prompt = 1;
  return config;
}

WorkloadConfig offline_dpo(int gpus) {
  WorkloadConfig config = small_grpo(gpus);
  config.policy.algorithm = Algorithm::kDpo;
  config.policy.reward = RewardSource::kModel;
  config.workload.samples_per_prompt = 1;
  config.workload.batch_size = 8;
  return config;
}

WorkloadConfig online_dpo(int gpus) {
  WorkloadConfig config = small_grpo(gpus);
  config.policy.algorithm = Algorithm::kDpo;
  config.policy.dpo_mode = DpoMode::kOnline;
  return config;
}

}  // namespace

std::vector<SmallSpace> small_spaces() {
  std::vector<SmallSpace> spaces;
  WorkloadConfig grpo = with_quantiles(small_grpo(4));
  grpo.optimizer.staleness_actor = {0, 1};
  spaces.push_back({"grpo, 4 GPUs, fusion, staleness", limited(grpo, 2, 2), small_hardware()});
  spaces.push_back({"grpo, 2 GPUs, slow links, fusion, staleness", grpo, slow_links()});
  spaces.back().config.hardware.gpus_per_node = 2;

  WorkloadConfig shared = with_quantiles(ppo(2));
  shared.policy.allow_ac_share = true;
  shared.optimizer.staleness_actor = {0, 1};
  spaces.push_back({"ppo, 2 GPUs, sharing, fusion, staleness", shared, small_hardware()});
  WorkloadConfig apart = limited(ppo(4), 1, 1);
  apart.policy.allow_ac_share = true;
  apart.optimizer.staleness_actor = {0, 1};
  apart.optimizer.staleness_critic = {0, 1};
  spaces.push_back({"ppo, 4 GPUs, sharing, staleness", apart, slow_links()});

  spaces.push_back({"offline dpo, 8 GPUs", offline_dpo(4), small_hardware()});
  spaces.back().config.hardware.nodes_per_rack = 2;
  WorkloadConfig online = limited(online_dpo(4), 2, 1);
  online.optimizer.staleness_actor = {0, 1};
  spaces.push_back({"online dpo, 4 GPUs, staleness", online, slow_links()});
  return spaces;
}

SmallSpace random_small_space(Rng& rng) {
  const auto coin = [&rng] { return rng.below(2) == 1; };
  SmallSpace space{"random", {}, small_hardware()};
  switch (rng.below(4)) {
    case 0:
      space.config = ppo(1);
      space.config.policy.kl_reference = coin();
      space.config.policy.allow_ac_share = coin();
      if (coin()) space.config.policy.reward = RewardSource::kModel;
      break;
    case 1:
      space.config = small_grpo(1);
      space.config.policy.kl_reference = coin();
      space.config.policy.recompute_logprobs = coin();
      space.config.models[kCritic].reset();
      break;
    case 2:
      space.config = offline_dpo(1);
      break;
    default:
      space.config = online_dpo(1);
      break;
  }
  WorkloadConfig& config = space.config;
  config.hardware.gpus_per_node = static_cast<int>(1 + rng.below(4));
  config.hardware.nodes_per_rack = static_cast<int>(1 + rng.below(3));
  config.hardware.racks = static_cast<int>(1 + rng.below(2));
  if (coin()) config = with_quantiles(config);
  config.workload.batch_size = 1 + rng.below(16);
  config.optimizer.staleness_actor =
      coin() ? std::vector<std::int64_t>{0, 1} : std::vector<std::int64_t>{rng.below(3)};
  config.optimizer.staleness_critic =
      coin() ? std::vector<std::int64_t>{0, 2} : std::vector<std::int64_t>{0};
  config.optimizer.recompute = static_cast<Recompute>(rng.below(3));
  config.optimizer.zero_stage = rng.below(4);
  config.policy.epochs = 1 + rng.below(2);
  if (config.workload.batch_size % 2 == 0 && coin()) config.policy.minibatches = 2;
  HardwareProfile& profile = space.profile;
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    profile.collective[tier].alpha_s *= 0.1 + 20.0 * rng.uniform();
    profile.collective[tier].beta_s_per_byte *= 0.1 + 20.0 * rng.uniform();
  }
  profile.memory_bandwidth *= 0.1 + rng.uniform();
  if (coin()) profile.memory_per_gpu = 3e6 * (0.3 + 2.0 * rng.uniform());
  if (coin()) profile.observed = random_factors(rng);
  return space;
}

}  // namespace rpeg::test
