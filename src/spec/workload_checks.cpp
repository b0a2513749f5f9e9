#include "spec/workload_checks.h"

#include <fmt/format.h>

namespace rpeg {
namespace {

constexpr std::int64_t kMostGpus = 1'000'000;

std::int64_t total_gpus(const ClusterSpec& cluster) {
  return std::int64_t{cluster.racks} * cluster.nodes_per_rack * cluster.gpus_per_node;
}

bool generates(const PolicySpec& policy) {
  return policy.algorithm != Algorithm::kDpo || policy.dpo_mode == DpoMode::kOnline;
}

void check_samples(const WorkloadConfig& config, MapReader& reader) {
  const std::int64_t samples = config.workload.samples_per_prompt;
  const bool is_dpo = config.policy.algorithm == Algorithm::kDpo;
  const bool compares =
      config.policy.algorithm == Algorithm::kGrpo || (is_dpo && generates(config.policy));
  if (compares && samples < 2) {
    reader.fault("samples_per_prompt",
                 fmt::format("{} compares the samples of a prompt and needs at least 2, found {}",
                             is_dpo ? "online dpo" : "grpo",
                             samples));
  }
  if (!generates(config.policy) && samples != 1) {
    reader.fault("samples_per_prompt",
                 fmt::format("offline dpo reads one pair per prompt and generates nothing; found "
                             "{}, expected 1 (or set policy.dpo_mode: online)",
                             samples));
  }
}

void check_minibatches(const WorkloadConfig& config, MapReader& reader) {
  const WorkloadSpec& workload = config.workload;
  const bool is_dpo = config.policy.algorithm == Algorithm::kDpo;
  const std::int64_t units = is_dpo ? workload.batch_size : workload.sequences();
  const std::int64_t minibatches = config.policy.minibatches;
  if (units % minibatches == 0) {
    return;
  }
  const std::string what =
      is_dpo ? fmt::format("batch_size {} pairs do", units)
             : fmt::format("batch_size {} x samples_per_prompt {} = {} sequences do",
                           workload.batch_size,
                           workload.samples_per_prompt,
                           units);
  const std::int64_t each = units / minibatches;
  reader.fault("minibatches",
               fmt::format("{} not divide into {} equal mini-batches ({} x {} = {}, {} left over)",
                           what,
                           minibatches,
                           minibatches,
                           each,
                           minibatches * each,
                           units % minibatches));
}

void check_models(const WorkloadConfig& config, MapReader& models) {
  for (const ModelRole role : {ModelRole::kActor, ModelRole::kCritic, ModelRole::kReward}) {
    if (needs_model(config.policy, role) && !config.models[static_cast<std::size_t>(role)]) {
      models.fault(to_string(role),
                   fmt::format("required key is missing: {} uses this model",
                               to_string(config.policy.algorithm)));
    }
  }
  const auto& actor = config.models[static_cast<std::size_t>(ModelRole::kActor)];
  const auto& critic = config.models[static_cast<std::size_t>(ModelRole::kCritic)];
  if (config.policy.allow_ac_share && actor && critic && !(*actor == *critic)) {
    models.fault("critic",
                 "policy.allow_ac_share lets actor and critic share one trunk; their shapes must "
                 "then be equal");
  }
}

}  // namespace

void check_cluster(const ClusterSpec& cluster, MapReader& reader) {
  const std::int64_t total = total_gpus(cluster);
  if (total > kMostGpus || std::int64_t{cluster.racks} * cluster.nodes_per_rack > kMostGpus) {
    reader.fault("racks",
                 fmt::format("{} racks x {} nodes x {} GPUs are more than {} GPUs",
                             cluster.racks,
                             cluster.nodes_per_rack,
                             cluster.gpus_per_node,
                             kMostGpus));
  } else if (cluster.max_gpus && *cluster.max_gpus > total) {
    reader.fault("max_gpus",
                 fmt::format("{} is more than the cluster has: {} x {} x {} = {} GPUs",
                             *cluster.max_gpus,
                             cluster.racks,
                             cluster.nodes_per_rack,
                             cluster.gpus_per_node,
                             total));
  }
}

void check_heads(const ModelSpec& model, MapReader& reader) {
  if (model.num_kv_heads < 1 || model.num_heads % model.num_kv_heads != 0) {
    reader.fault("num_kv_heads",
                 fmt::format("num_heads {} is not a multiple of num_kv_heads {}",
                             model.num_heads,
                             model.num_kv_heads));
  }
}

void check_quantiles(const WorkloadSpec& workload, MapReader& reader) {
  constexpr std::size_t kMostPoints = 32;  // the bits of Structure::cuts, and one for the end
  if (workload.gen_quantiles.size() > kMostPoints) {
    reader.fault("gen_quantiles",
                 fmt::format("{} points are more than {}; leave some out, the distribution is "
                             "linear between points",
                             workload.gen_quantiles.size(),
                             kMostPoints));
  }
  LengthQuantile previous{0.0, 0.0};
  for (std::size_t i = 0; i < workload.gen_quantiles.size(); ++i) {
    const LengthQuantile& point = workload.gen_quantiles[i];
    if (point.probability <= previous.probability || point.tokens <= previous.tokens) {
      reader.fault("gen_quantiles",
                   fmt::format("point {} [{}, {}] does not lie above the one before it [{}, {}]; "
                               "probabilities and tokens must both increase",
                               i + 1,
                               point.probability,
                               point.tokens,
                               previous.probability,
                               previous.tokens));
    }
    previous = point;
  }
  const auto end = static_cast<double>(workload.generation_length);
  if (!workload.gen_quantiles.empty() && (previous.probability != 1.0 || previous.tokens != end)) {
    reader.fault("gen_quantiles",
                 fmt::format("the last point is [{}, {}]; it must be [1, {}], since by "
                             "generation_length every sequence has ended",
                             previous.probability,
                             previous.tokens,
                             workload.generation_length));
  }
}

void check_policy(const PolicySpec& policy, MapReader& reader) {
  const char* name = to_string(policy.algorithm);
  const bool is_dpo = policy.algorithm == Algorithm::kDpo;
  if (!is_dpo && reader.has("dpo_mode")) {
    reader.fault("dpo_mode", fmt::format("{} does not read this key; remove it", name));
  }
  if (policy.algorithm != Algorithm::kPpo && policy.allow_ac_share) {
    reader.fault("allow_ac_share", fmt::format("{} has no critic to share with the actor", name));
  }
  if (is_dpo && !policy.kl_reference) {
    reader.fault("kl_reference", "the loss of dpo reads the reference; it cannot be dropped");
  }
  if (is_dpo && policy.recompute_logprobs) {
    reader.fault("recompute_logprobs", "dpo does not read old log-probabilities; remove this key");
  }
  if (!generates(policy) && policy.reward == RewardSource::kVerifier) {
    reader.fault("reward", "offline dpo reads preferences from data and scores nothing");
  }
}

void check_temperatures(const OptimizerSpec& optimizer, MapReader& reader) {
  if (optimizer.t_min > optimizer.t_init) {
    reader.fault(reader.has("t_min") ? "t_min" : "t_init",
                 fmt::format("the temperature falls from t_init to t_min, but t_init {} < t_min {}",
                             optimizer.t_init,
                             optimizer.t_min));
  }
}

void check_workload_config(const WorkloadConfig& config,
                           MapReader& models,
                           MapReader& workload,
                           MapReader& policy) {
  check_models(config, models);
  check_samples(config, workload);
  check_minibatches(config, policy);
}

bool needs_model(const PolicySpec& policy, ModelRole role) {
  switch (role) {
    case ModelRole::kActor:
      return true;
    case ModelRole::kCritic:
      return policy.algorithm == Algorithm::kPpo;
    case ModelRole::kReward:
      return policy.reward == RewardSource::kModel && generates(policy);
    case ModelRole::kReference:
      return policy.algorithm == Algorithm::kDpo || policy.kl_reference;
  }
  return false;
}

}  // namespace rpeg
