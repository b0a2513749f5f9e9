#include "support/random_config.h"

#include <algorithm>
#include <cmath>

namespace rpeg {
namespace {

std::int64_t between(Rng& rng, std::int64_t low, std::int64_t high) {
  return low + rng.below(high - low + 1);
}
bool coin(Rng& rng) { return rng.below(2) == 1; }

/// Family and scaling follow from other numbers, so that the stream of random ones stays as it is.
void add_family(ModelSpec& model) {
  model.family = static_cast<ModelFamily>(model.ffn_dim % 4);
  model.qkv_bias = model.family == ModelFamily::kQwen2;
  model.qk_norm = model.family == ModelFamily::kQwen3;
  RopeScaling& scaling = model.rope_scaling;
  scaling.kind = static_cast<RopeScalingKind>(model.ffn_dim % 3);
  if (scaling.kind != RopeScalingKind::kNone) {
    scaling.factor = 1.0 + model.initializer_range;
  }
  if (scaling.kind == RopeScalingKind::kLlama3) {
    scaling.low_freq_factor = 1.0 + model.initializer_range;
    scaling.high_freq_factor = 3.0 + model.initializer_range;
    scaling.original_positions = model.max_positions;
  }
}

ModelSpec random_model(Rng& rng) {
  ModelSpec model;
  model.layers = between(rng, 1, 80);
  model.num_kv_heads = between(rng, 1, 8);
  model.num_heads = model.num_kv_heads * between(rng, 1, 8);
  model.head_dim = between(rng, 1, 16) * 8;
  model.hidden_dim = coin(rng) ? model.num_heads * model.head_dim : between(rng, 64, 8192);
  model.ffn_dim = between(rng, 64, 20000);
  model.vocab_size = between(rng, 100, 200000);
  model.gated_ffn = coin(rng);
  model.tied_embeddings = coin(rng);
  model.rope_theta = 1.0 + 1e6 * rng.uniform();
  model.rms_norm_eps = 1e-6 + 1e-5 * rng.uniform();
  model.max_positions = between(rng, 16, 1 << 17);
  model.initializer_range = rng.uniform();
  add_family(model);
  return model;
}

WorkloadSpec random_workload(Rng& rng, const PolicySpec& policy) {
  WorkloadSpec workload;
  workload.batch_size = between(rng, 1, 64) * policy.minibatches;
  const bool offline = policy.algorithm == Algorithm::kDpo && policy.dpo_mode == DpoMode::kOffline;
  workload.samples_per_prompt = offline ? 1 : between(rng, 2, 16);
  workload.context_length = between(rng, 1, 4096);
  workload.generation_length = between(rng, 100, 4096);
  const std::int64_t points = between(rng, 0, 4);
  const auto end = static_cast<double>(workload.generation_length);
  for (std::int64_t i = 1; i < points; ++i) {
    const double share =
        (static_cast<double>(i) + 0.5 * rng.uniform()) / static_cast<double>(points);
    workload.gen_quantiles.push_back({share, share * end});
  }
  if (points > 0) {
    workload.gen_quantiles.push_back({1.0, end});
  }
  return workload;
}

PolicySpec random_policy(Rng& rng) {
  PolicySpec policy;
  policy.algorithm = static_cast<Algorithm>(rng.below(3));
  const bool is_dpo = policy.algorithm == Algorithm::kDpo;
  policy.dpo_mode = is_dpo ? static_cast<DpoMode>(rng.below(2)) : DpoMode::kOffline;
  const bool offline = is_dpo && policy.dpo_mode == DpoMode::kOffline;
  policy.reward = !offline && coin(rng) ? RewardSource::kVerifier : RewardSource::kModel;
  policy.kl_reference = is_dpo || coin(rng);
  policy.allow_fusion = coin(rng);
  policy.recompute_logprobs = !is_dpo && coin(rng);
  policy.epochs = between(rng, 1, 4);
  policy.minibatches = between(rng, 1, 4);
  return policy;
}

OptimizerSpec random_optimizer(Rng& rng) {
  OptimizerSpec optimizer;
  optimizer.k_eval = between(rng, 1, 50);
  optimizer.t_init = 0.01 + rng.uniform();
  optimizer.t_min = optimizer.t_init * (0.1 + 0.9 * rng.uniform());
  optimizer.t_warm = 0.01 + rng.uniform();
  optimizer.k_x = between(rng, 1, 20);
  optimizer.stag_window = between(rng, 1, 1000);
  optimizer.staleness_actor =
      coin(rng) ? std::vector<std::int64_t>{0, 1, 4} : std::vector<std::int64_t>{1};
  optimizer.staleness_critic = {0};
  optimizer.chains = between(rng, 1, 64);
  optimizer.zero_stage = between(rng, 0, 3);
  optimizer.recompute = static_cast<Recompute>(rng.below(3));
  optimizer.sequence_parallel = coin(rng);
  optimizer.objective = static_cast<Objective>(rng.below(2));
  optimizer.dtype = static_cast<TrainDtype>(rng.below(2));
  if (coin(rng)) {
    optimizer.evals = between(rng, 1, 1'000'000);
    optimizer.max_tp = between(rng, 1, 8);
    optimizer.max_pp = between(rng, 1, 8);
  }
  return optimizer;
}

/// Every order of magnitude from 1 to `most` is as likely as the others.
std::int64_t any_size(Rng& rng, double most) {
  return static_cast<std::int64_t>(std::exp(rng.uniform() * std::log(most)));
}

ModelSpec extreme_model(Rng& rng) {
  ModelSpec model;
  model.layers = any_size(rng, 1e5);
  model.num_kv_heads = any_size(rng, 1e3);
  model.num_heads = model.num_kv_heads * any_size(rng, 1e3);
  model.head_dim = any_size(rng, 1e4);
  model.hidden_dim = any_size(rng, 1e7);
  model.ffn_dim = any_size(rng, 1e7);
  model.vocab_size = any_size(rng, 1e8);
  return model;
}

void make_extreme(Rng& rng, WorkloadSpec& workload, std::int64_t minibatches) {
  workload.batch_size = minibatches * any_size(rng, 1e7 / static_cast<double>(minibatches));
  if (workload.samples_per_prompt > 1) workload.samples_per_prompt = 1 + any_size(rng, 99'999);
  workload.context_length = any_size(rng, 1e8);
  workload.generation_length = any_size(rng, 1e8);
  workload.gen_quantiles.clear();
  const auto end = static_cast<double>(workload.generation_length);
  double share = 0.0;
  double tokens = 0.0;
  for (std::int64_t points = rng.below(32); points > 0; --points) {
    // Steps of every size, so that shares and lengths come close to 0, to each other and to 1.
    share += (1.0 - share) / static_cast<double>(any_size(rng, 1e8));
    tokens += (end - tokens) / static_cast<double>(any_size(rng, 1e8));
    if (share >= 1.0 || tokens >= end) break;
    workload.gen_quantiles.push_back({share, tokens});
  }
  if (!workload.gen_quantiles.empty()) workload.gen_quantiles.push_back({1.0, end});
}

}  // namespace

WorkloadConfig extreme_workload_config(Rng& rng) {
  WorkloadConfig config = random_workload_config(rng);
  ClusterSpec& cluster = config.hardware;
  cluster.max_gpus.reset();
  cluster.gpus_per_node = static_cast<int>(any_size(rng, 1e6));
  cluster.nodes_per_rack = static_cast<int>(any_size(rng, 1e6 / cluster.gpus_per_node));
  cluster.racks =
      static_cast<int>(any_size(rng, 1e6 / cluster.gpus_per_node / cluster.nodes_per_rack));
  if (coin(rng)) {
    cluster.max_gpus = static_cast<int>(any_size(rng, cluster.gpu_count()));
  }
  for (auto& model : config.models) {
    if (model && coin(rng)) model = extreme_model(rng);
  }
  if (config.policy.allow_ac_share) {
    config.models[static_cast<std::size_t>(ModelRole::kCritic)] = config.models[0];
  }
  config.policy.epochs = any_size(rng, 1000);
  config.policy.minibatches = any_size(rng, 1e6);
  make_extreme(rng, config.workload, config.policy.minibatches);
  config.optimizer.k_x = any_size(rng, 1000);
  config.optimizer.stag_window = any_size(rng, 1e9);
  config.optimizer.staleness_actor.assign({0, 64, any_size(rng, 63)});
  config.optimizer.max_tp.reset();
  config.optimizer.max_pp.reset();
  if (coin(rng)) config.optimizer.max_tp = any_size(rng, 1e6);
  if (coin(rng)) config.optimizer.max_pp = any_size(rng, 1e6);
  return config;
}

WorkloadConfig random_workload_config(Rng& rng) {
  WorkloadConfig config;
  config.hardware.racks = static_cast<int>(between(rng, 1, 4));
  config.hardware.nodes_per_rack = static_cast<int>(between(rng, 1, 8));
  config.hardware.gpus_per_node = static_cast<int>(between(rng, 1, 8));
  if (coin(rng)) {
    config.hardware.gpu_hour_price = 0.5 + rng.uniform();
    config.hardware.max_gpus = static_cast<int>(between(rng, 1, config.hardware.gpu_count()));
  }
  for (auto& model : config.models) {
    model = random_model(rng);
  }
  config.policy = random_policy(rng);
  config.workload = random_workload(rng, config.policy);
  config.optimizer = random_optimizer(rng);
  const bool is_ppo = config.policy.algorithm == Algorithm::kPpo;
  if (!is_ppo && coin(rng)) {
    config.models[static_cast<std::size_t>(ModelRole::kCritic)].reset();
  }
  if (coin(rng)) {
    config.models[static_cast<std::size_t>(ModelRole::kReference)].reset();
  }
  if (is_ppo && coin(rng)) {
    config.policy.allow_ac_share = true;
    config.models[static_cast<std::size_t>(ModelRole::kCritic)] = config.models[0];
  }
  config.seed = rng.next() >> 1;
  return config;
}

}  // namespace rpeg
