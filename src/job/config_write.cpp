#include <fmt/format.h>

#include "job/config_yaml.h"

namespace rpeg {
namespace {

template <typename Enum>
const std::string& name_of(const std::vector<std::string>& names, Enum value) {
  return names[static_cast<std::size_t>(value)];
}

/// A field unless the text is empty.
void text_field(YamlWriter& writer, const char* key, const std::string& text) {
  if (!text.empty()) {
    writer.field(key, text);
  }
}

std::string model_text(const ModelSource& source) {
  if (source.init_from) {
    return fmt::format("{{init_from: {}}}", to_string(*source.init_from));
  }
  const std::string path = yaml_scalar(source.path.string());
  return source.random_init
             ? fmt::format("{{init: random, config: {}, seed: {}}}", path, source.seed)
             : fmt::format("{{path: {}}}", path);
}

void write_models(YamlWriter& writer, const JobConfig& config) {
  writer.begin_map("models");
  for (std::size_t i = 0; i < kModelRoles; ++i) {
    const auto& source = config.models[i];
    if (source) {
      writer.raw(to_string(static_cast<ModelRole>(i)), model_text(*source));
    }
  }
  writer.end_map();
}

void write_data(YamlWriter& writer, const DataConfig& data, bool preferences) {
  const DatasetOptions& train = data.train;
  writer.begin_map("data");
  writer.field("prompts", train.path.string());
  writer.field("prompt_field", train.prompt_field);
  text_field(writer, "template", train.prompt_template);
  if (train.max_prompt_tokens > 0) {
    writer.field("max_prompt_tokens", train.max_prompt_tokens);
  }
  if (train.max_response_tokens > 0) {
    writer.field("max_response_tokens", train.max_response_tokens);
  }
  if (train.max_prompt_tokens > 0 || train.max_response_tokens > 0) {
    writer.field("over_long", name_of(kOverLongNames, train.over_long));
  }
  writer.field("shuffle", data.shuffle);
  if (preferences) {
    writer.field("chosen_field", train.chosen_field);
    writer.field("rejected_field", train.rejected_field);
  } else {
    writer.field("answer_field", train.answer_field);
    text_field(writer, "eval", data.eval.string());
    writer.field("eval_every", data.eval_every);
  }
  writer.end_map();
}

std::string flow_text(const std::vector<std::string>& values) {
  std::vector<std::string> parts;
  parts.reserve(values.size());
  for (const std::string& value : values) {
    parts.push_back(yaml_scalar(value));
  }
  return yaml_flow(parts);
}

void write_reward(YamlWriter& writer, const VerifierSpec& verifier) {
  if (verifier.kind == VerifierKind::kNone) {
    return;
  }
  writer.begin_map("reward");
  if (verifier.kind == VerifierKind::kCommand) {
    writer.raw("command", flow_text(verifier.command));
    writer.field("timeout", verifier.timeout_s);
  } else {
    writer.field("verifier", name_of(kVerifierNames, verifier.kind));
    text_field(writer, "pattern", verifier.pattern);
  }
  writer.end_map();
}

void write_policy_options(YamlWriter& writer, const TrainConfig& train) {
  const PolicyLossOptions& policy = train.policy;
  writer.field("clip_low", policy.clip_low);
  writer.field("clip_high", policy.clip_high);
  writer.field("dual_clip", policy.dual_clip);
  writer.field("ratio", name_of(kRatioNames, policy.ratio));
  writer.field("loss", name_of(kAggregationNames, policy.aggregation));
  writer.field("entropy_coef", policy.entropy_coef);
  writer.field("decoupled", train.decoupled);
}

void write_ppo(YamlWriter& writer, const TrainConfig& train) {
  write_policy_options(writer, train);
  writer.field("value_clip", train.value_clip);
  writer.field("value_coef", train.value_coef);
  writer.field("gamma", train.gamma);
  writer.field("lambda", train.lambda);
  writer.field("kl_coef", train.reward_kl_coef);
  writer.field("kl_estimator", name_of(kKlEstimatorNames, train.reward_kl_estimator));
  if (train.kl_controller.target > 0.0) {
    writer.field("kl_target", train.kl_controller.target);
    writer.field("kl_horizon", train.kl_controller.horizon);
  }
  writer.field("whiten", name_of(kWhiteningNames, train.whiten));
}

void write_grpo(YamlWriter& writer, const TrainConfig& train) {
  write_policy_options(writer, train);
  writer.field("kl_coef", train.policy.kl_coef);
  writer.field("kl_estimator", name_of(kKlEstimatorNames, train.policy.kl_estimator));
  writer.field("advantage", name_of(kAdvantageNames, train.advantage));
  writer.field("std_eps", train.std_eps);
}

void write_dpo(YamlWriter& writer, const DpoLossOptions& dpo) {
  writer.field("beta", dpo.beta);
  writer.field("label_smoothing", dpo.label_smoothing);
  writer.field("loss", name_of(kDpoLossNames, dpo.kind));
}

void write_algorithm(YamlWriter& writer, const TrainConfig& train, Algorithm algorithm) {
  writer.begin_map(to_string(algorithm));
  writer.field("epochs", train.epochs);
  writer.field("minibatches", train.minibatches);
  switch (algorithm) {
    case Algorithm::kPpo:
      write_ppo(writer, train);
      break;
    case Algorithm::kGrpo:
      write_grpo(writer, train);
      break;
    case Algorithm::kDpo:
      write_dpo(writer, train.dpo);
      break;
  }
  writer.end_map();
}

void write_train(YamlWriter& writer, const TrainConfig& train, Algorithm algorithm) {
  writer.begin_map("train");
  writer.field("iterations", train.iterations);
  writer.raw("learning_rate",
             fmt::format("{{actor: {}, critic: {}}}",
                         yaml_scalar(train.learning_rate_actor),
                         yaml_scalar(train.learning_rate_critic)));
  writer.raw(
      "schedule",
      fmt::format(
          "{{kind: {}, warmup: {}}}", name_of(kScheduleNames, train.schedule), train.warmup));
  writer.begin_map("optimizer");
  writer.raw("betas", yaml_flow({yaml_scalar(train.beta1), yaml_scalar(train.beta2)}));
  writer.field("eps", train.eps);
  writer.field("weight_decay", train.weight_decay);
  writer.field("grad_clip", train.grad_clip);
  writer.end_map();
  write_algorithm(writer, train, algorithm);
  writer.end_map();
}

void write_runtime(YamlWriter& writer, const RuntimeConfig& runtime) {
  writer.begin_map("runtime");
  writer.field("backend", "cpu");
  writer.field("dtype", "fp32");
  writer.field("transport", "mpi");
  const auto directory = [&](const char* key, const std::filesystem::path& path) {
    if (!path.empty()) {
      writer.raw(key, fmt::format("{{dir: {}}}", yaml_scalar(path.string())));
    }
  };
  directory("trace", runtime.trace_dir);
  directory("metrics", runtime.metrics_dir);
  directory("save", runtime.save_dir);
  text_field(writer, "rollouts", runtime.rollouts.string());
  writer.field("publish", name_of(kPublishNames, runtime.publish));
  writer.end_map();
}

void write_slurm(YamlWriter& writer, const SlurmConfig& slurm) {
  writer.begin_map("slurm");
  text_field(writer, "partition", slurm.partition);
  text_field(writer, "time", slurm.time);
  text_field(writer, "account", slurm.account);
  text_field(writer, "gres_per_node", slurm.gres_per_node);
  text_field(writer, "container", slurm.container);
  writer.raw("modules", flow_text(slurm.modules));
  writer.raw("extra", flow_text(slurm.extra));
  writer.end_map();
}

}  // namespace

void write_job_config(YamlWriter& writer, const JobConfig& config, const PolicySpec& policy) {
  const bool preferences = trains_on_preferences(policy);
  writer.field("plan", config.plan.string());
  if (config.seed) {
    writer.field("seed", static_cast<std::int64_t>(*config.seed));
  }
  write_models(writer, config);
  write_data(writer, config.data, preferences);
  write_reward(writer, config.verifier);
  write_train(writer, config.train, policy.algorithm);
  if (!preferences) {
    writer.begin_map("sampling");
    writer.field("temperature", config.sampling.temperature);
    writer.field("top_p", config.sampling.top_p);
    writer.field("top_k", config.sampling.top_k);
    writer.end_map();
  }
  write_runtime(writer, config.runtime);
  write_slurm(writer, config.slurm);
}

}  // namespace rpeg
