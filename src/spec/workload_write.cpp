#include <fmt/format.h>

#include "rpeg/base/error.h"
#include "rpeg/spec/workload_config.h"
#include "rpeg/yaml/writer.h"
#include "spec/workload_names.h"

namespace rpeg {
namespace {

template <typename Enum>
const std::string& word(const std::vector<std::string>& words, Enum value) {
  return words[static_cast<std::size_t>(value)];
}

void write_cluster(YamlWriter& writer, const ClusterSpec& cluster) {
  writer.begin_map("hardware");
  writer.field("racks", std::int64_t{cluster.racks});
  writer.field("nodes_per_rack", std::int64_t{cluster.nodes_per_rack});
  writer.field("gpus_per_node", std::int64_t{cluster.gpus_per_node});
  if (cluster.gpu_hour_price) {
    writer.field("gpu_hour_price", *cluster.gpu_hour_price);
  }
  if (cluster.max_gpus) {
    writer.field("max_gpus", std::int64_t{*cluster.max_gpus});
  }
  writer.end_map();
}

/// What differs from a plain Llama.
void write_family(YamlWriter& writer, const ModelSpec& model) {
  if (model.family != ModelFamily::kLlama) {
    writer.field("family", to_string(model.family));
  }
  if (model.qkv_bias) {
    writer.field("qkv_bias", true);
  }
  if (model.qk_norm) {
    writer.field("qk_norm", true);
  }
  const RopeScaling& scaling = model.rope_scaling;
  if (scaling.kind == RopeScalingKind::kNone) {
    return;
  }
  writer.begin_map("rope_scaling");
  writer.field("type", word(words::kRopeScaling, scaling.kind));
  writer.field("factor", scaling.factor);
  if (scaling.kind == RopeScalingKind::kLlama3) {
    writer.field("low_freq_factor", scaling.low_freq_factor);
    writer.field("high_freq_factor", scaling.high_freq_factor);
    writer.field("original_positions", scaling.original_positions);
  }
  writer.end_map();
}

void write_model(YamlWriter& writer, const char* role, const ModelSpec& model) {
  writer.begin_map(role);
  writer.field("layers", model.layers);
  writer.field("hidden_dim", model.hidden_dim);
  writer.field("ffn_dim", model.ffn_dim);
  writer.field("vocab_size", model.vocab_size);
  writer.field("head_dim", model.head_dim);
  writer.field("num_heads", model.num_heads);
  writer.field("num_kv_heads", model.num_kv_heads);
  writer.field("gated_ffn", model.gated_ffn);
  writer.field("tied_embeddings", model.tied_embeddings);
  write_family(writer, model);
  writer.field("rope_theta", model.rope_theta);
  writer.field("rms_norm_eps", model.rms_norm_eps);
  writer.field("max_positions", model.max_positions);
  writer.field("initializer_range", model.initializer_range);
  writer.end_map();
}

void write_workload(YamlWriter& writer, const WorkloadSpec& workload) {
  writer.begin_map("workload");
  writer.field("batch_size", workload.batch_size);
  writer.field("samples_per_prompt", workload.samples_per_prompt);
  writer.field("context_length", workload.context_length);
  writer.field("generation_length", workload.generation_length);
  if (!workload.gen_quantiles.empty()) {
    std::vector<std::string> points;
    for (const LengthQuantile& point : workload.gen_quantiles) {
      points.push_back(yaml_flow({yaml_scalar(point.probability), yaml_scalar(point.tokens)}));
    }
    writer.raw("gen_quantiles", yaml_flow(points));
  }
  writer.end_map();
}

void write_policy(YamlWriter& writer, const PolicySpec& policy) {
  writer.begin_map("policy");
  writer.field("algorithm", to_string(policy.algorithm));
  if (policy.algorithm == Algorithm::kDpo) {
    writer.field("dpo_mode", word(words::kDpoMode, policy.dpo_mode));
  }
  writer.field("reward", word(words::kReward, policy.reward));
  writer.field("allow_ac_share", policy.allow_ac_share);
  writer.field("kl_reference", policy.kl_reference);
  writer.field("allow_fusion", policy.allow_fusion);
  writer.field("recompute_logprobs", policy.recompute_logprobs);
  writer.field("epochs", policy.epochs);
  writer.field("minibatches", policy.minibatches);
  writer.end_map();
}

std::string budgets(const std::vector<std::int64_t>& values) {
  std::vector<std::string> parts;
  for (const std::int64_t value : values) {
    parts.push_back(yaml_scalar(value));
  }
  return yaml_flow(parts);
}

void write_optimizer(YamlWriter& writer, const OptimizerSpec& optimizer) {
  writer.begin_map("optimizer");
  writer.field("k_eval", optimizer.k_eval);
  writer.field("t_init", optimizer.t_init);
  writer.field("t_min", optimizer.t_min);
  writer.field("t_warm", optimizer.t_warm);
  writer.field("k_x", optimizer.k_x);
  writer.field("stag_window", optimizer.stag_window);
  writer.raw("staleness_candidates",
             fmt::format("{{actor: {}, critic: {}}}",
                         budgets(optimizer.staleness_actor),
                         budgets(optimizer.staleness_critic)));
  if (optimizer.evals) {
    writer.field("evals", *optimizer.evals);
  }
  writer.field("chains", optimizer.chains);
  writer.field("zero_stage", optimizer.zero_stage);
  writer.field("recompute", word(words::kRecompute, optimizer.recompute));
  writer.field("sequence_parallel", optimizer.sequence_parallel);
  writer.field("objective", word(words::kObjective, optimizer.objective));
  writer.field("dtype", word(words::kDtype, optimizer.dtype));
  if (optimizer.max_tp) {
    writer.field("max_tp", *optimizer.max_tp);
  }
  if (optimizer.max_pp) {
    writer.field("max_pp", *optimizer.max_pp);
  }
  writer.end_map();
}

}  // namespace

void write_workload_inputs(YamlWriter& writer, const WorkloadConfig& config) {
  write_cluster(writer, config.hardware);
  writer.begin_map("models");
  for (std::size_t i = 0; i < kModelRoles; ++i) {
    if (config.models[i]) {
      write_model(writer, to_string(static_cast<ModelRole>(i)), *config.models[i]);
    }
  }
  writer.end_map();
  write_workload(writer, config.workload);
  write_policy(writer, config.policy);
  write_optimizer(writer, config.optimizer);
  writer.field("seed", static_cast<std::int64_t>(config.seed));
}

const ModelSpec& WorkloadConfig::model(ModelRole role) const {
  const auto& own = models[static_cast<std::size_t>(role)];
  const auto& actor = models[static_cast<std::size_t>(ModelRole::kActor)];
  const auto& result = own || role != ModelRole::kReference ? own : actor;
  check(result.has_value(), fmt::format("the job has no model `{}`", to_string(role)));
  return *result;
}

const char* to_string(ModelRole role) {
  switch (role) {
    case ModelRole::kActor:
      return "actor";
    case ModelRole::kCritic:
      return "critic";
    case ModelRole::kReward:
      return "reward";
    case ModelRole::kReference:
      return "reference";
  }
  return "";
}

const char* to_string(Algorithm algorithm) {
  return words::kAlgorithm[static_cast<std::size_t>(algorithm)].c_str();
}

}  // namespace rpeg
