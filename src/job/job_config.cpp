#include "rpeg/job/job_config.h"

#include <fmt/format.h>

#include "job/config_yaml.h"
#include "job/supported.h"
#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/plan/plan_file.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

std::size_t slot(ModelRole role) { return static_cast<std::size_t>(role); }

/// Where one model comes from: exactly one of `path`, `init: random`, `init_from: actor`.
ModelSource read_model(MapReader& models, ModelRole role, const ConfigContext& context) {
  ModelSource source;
  MapReader model = models.map(to_string(role), true);
  const bool random = model.has("init");
  const bool copies = model.has("init_from");
  if (int{model.has("path")} + int{random} + int{copies} != 1) {
    models.fault(to_string(role),
                 "expected one of {path: DIR}, {init: random, config: DIR} and {init_from: actor}");
  }
  model.choice("init", {"random"}, 0);
  model.choice("init_from", {"actor"}, 0);
  if (random) {
    source.random_init = true;
    source.path = resolve_path(context.folder, model.string("config"));
    source.seed = static_cast<std::uint64_t>(
        model.integer("seed", kAtLeastZero, static_cast<std::int64_t>(context.seed)));
  } else {
    source.path = resolve_path(context.folder, model.string("path", ""));
  }
  if (copies) {
    source.init_from = ModelRole::kActor;
    if (role == ModelRole::kActor) {
      model.fault("init_from", "the actor cannot start from itself");
    }
  }
  model.finish();
  return source;
}

bool is_used(ModelRole role, const PolicySpec& policy) {
  switch (role) {
    case ModelRole::kActor:
      return true;
    case ModelRole::kCritic:
      return policy.algorithm == Algorithm::kPpo;
    case ModelRole::kReward:
      return policy.reward == RewardSource::kModel && !trains_on_preferences(policy);
    case ModelRole::kReference:
      return policy.algorithm == Algorithm::kDpo || policy.kl_reference;
  }
  return false;
}

/// The model of a role that the plan does not use. A reward model beside a verifier is a
/// contradiction, not only of no use.
void report_unused_model(MapReader& models, ModelRole role, const ConfigContext& context) {
  const PolicySpec& policy = context.plan.policy;
  if (role == ModelRole::kReward && !trains_on_preferences(policy)) {
    models.fault("reward",
                 "the plan takes rewards from a verifier (policy.reward: verifier): leave the "
                 "model out, or plan with policy.reward: model");
  } else {
    context.warnings.push_back(fmt::format("models.{} is not used by this plan", to_string(role)));
  }
}

/// A reward model has learnt its rewards.
void check_reward_model(MapReader& models, const ModelSource& source) {
  if (source.random_init || source.init_from) {
    models.fault("reward", "expected {path: DIR}: rewards come from a trained model");
  }
}

/// The models that the algorithm uses; others in the file are only reported.
void read_models(MapReader models, JobConfig* config, const ConfigContext& context) {
  for (std::size_t i = 0; i < kModelRoles; ++i) {
    const auto role = static_cast<ModelRole>(i);
    const std::string key = to_string(role);
    const bool used = is_used(role, context.plan.policy);
    if (models.value(key, used && role != ModelRole::kReference) == nullptr) {
      continue;
    }
    const ModelSource source = read_model(models, role, context);
    if (!used) {
      report_unused_model(models, role, context);
      continue;
    }
    if (role == ModelRole::kReward) {
      check_reward_model(models, source);
    }
    config->models[i] = source;
  }
  models.finish();
  auto& reference = config->models[slot(ModelRole::kReference)];
  // The reference is the actor's initial weights unless the file says otherwise.
  if (is_used(ModelRole::kReference, context.plan.policy) && (!reference || reference->init_from)) {
    reference = config->models[slot(ModelRole::kActor)];
  }
}

SamplingConfig read_sampling(MapReader& root, const ConfigContext& context) {
  SamplingConfig result;
  if (trains_on_preferences(context.plan.policy)) {
    if (root.has("sampling")) {
      context.warnings.emplace_back("sampling is not used: offline dpo generates nothing");
    }
    root.ignore("sampling");
    return result;
  }
  MapReader sampling = root.map("sampling", false);
  const auto vocab_size = static_cast<double>(context.plan.model(ModelRole::kActor).vocab_size);
  result.temperature = sampling.number("temperature", {1e-3, 1e3}, result.temperature);
  result.top_p = sampling.number("top_p", {1e-6, 1.0}, result.top_p);
  result.top_k = sampling.integer("top_k", {0.0, vocab_size}, result.top_k);
  sampling.finish();
  return result;
}

/// One of `choices`, of which this version has only the first `supported`.
void read_supported(MapReader& block,
                    const std::string& key,
                    const std::vector<std::string>& choices,
                    std::size_t supported) {
  const std::size_t index = block.choice(key, choices, 0);
  if (index >= supported) {
    block.fault(key,
                fmt::format("`{}` is not supported by this version; set `{}`",
                            choices[index],
                            choices[supported - 1]));
  }
}

std::string read_directory(MapReader& block, const std::string& key, const std::string& fallback) {
  MapReader inner = block.map(key, false);
  const std::string dir = block.has(key) ? inner.string("dir") : inner.string("dir", fallback);
  if (key == "metrics" && inner.boolean("tensorboard", false)) {
    inner.fault("tensorboard", "not supported by this version; metrics are JSONL");
  }
  inner.finish();
  return dir;
}

RuntimeConfig read_runtime(MapReader runtime) {
  RuntimeConfig result;
  read_supported(runtime, "backend", {"auto", "cpu", "cuda", "rehearse"}, 2);
  read_supported(runtime, "dtype", {"fp32", "bf16"}, 1);
  read_supported(runtime, "transport", {"auto", "mpi", "ucx"}, 2);
  reject_key(runtime, "checkpoint", "runtime.save writes the trained models at the end");
  result.trace_dir = read_directory(runtime, "trace", "");
  result.metrics_dir = read_directory(runtime, "metrics", "metrics");
  result.save_dir = read_directory(runtime, "save", "");
  result.rollouts = runtime.string("rollouts", "");
  result.publish = static_cast<Publish>(runtime.choice("publish", kPublishNames, 0));
  runtime.finish();
  return result;
}

SlurmConfig read_slurm(MapReader slurm) {
  SlurmConfig result;
  result.partition = slurm.string("partition", "");
  result.time = slurm.string("time", "");
  result.account = slurm.string("account", "");
  result.gres_per_node = slurm.string("gres_per_node", "");
  result.container = slurm.string("container", "");
  const auto strings = [&](const char* key, std::vector<std::string>* out) {
    slurm.sequence(key, false, [&](const YamlValue& item, const std::string& path) {
      out->push_back(yaml_string(item, path, slurm.faults()));
    });
  };
  strings("modules", &result.modules);
  strings("extra", &result.extra);
  slurm.finish();
  return result;
}

}  // namespace

fs::path resolve_path(const fs::path& folder, const std::string& text) {
  return text.empty() ? fs::path() : (folder / text).lexically_normal();
}

bool trains_on_preferences(const PolicySpec& policy) {
  return policy.algorithm == Algorithm::kDpo && policy.dpo_mode == DpoMode::kOffline;
}

void refuse_key(MapReader& reader, const std::string& key, const std::string& reason) {
  if (reader.has(key)) {
    reader.fault(key, reason);
  }
  reader.ignore(key);
}

void reject_key(MapReader& reader, const std::string& key, const std::string& advice) {
  refuse_key(reader, key, "not supported by this version; " + advice);
}

JobConfig read_job_config(MapReader& root, ConfigContext context) {
  JobConfig config;
  config.plan = resolve_path(context.folder, root.string("plan"));
  if (root.has("seed")) {
    config.seed = static_cast<std::uint64_t>(root.integer("seed", kAtLeastZero));
  }
  root.ignore("seed");
  context.seed = config.seed.value_or(context.plan.seed);
  read_models(root.map("models", true), &config, context);
  config.data = read_data_config(root.map("data", true), context);
  config.verifier = read_reward_config(root, context);
  config.train = read_train_config(root, context);
  config.sampling = read_sampling(root, context);
  config.runtime = read_runtime(root.map("runtime", false));
  config.slurm = read_slurm(root.map("slurm", false));
  root.finish();
  return config;
}

const fs::path& model_directory(const JobConfig& config, ModelRole role) {
  const auto& source = config.models[slot(role)];
  check(source.has_value(), fmt::format("job: no {} is configured", to_string(role)));
  return source->init_from ? model_directory(config, *source->init_from) : source->path;
}

JobConfig load_job_config(const fs::path& path,
                          std::vector<std::string>& warnings,
                          const fs::path& plan_override) {
  const YamlValue document = parse_yaml(read_file(path), path.string());
  Faults faults(path.string());
  MapReader root(document, "", faults);
  root.choice("schema", {"rpeg-job/1"}, 0);
  const fs::path folder = fs::absolute(path).parent_path();
  // The plan decides which blocks of the file are read.
  const std::string planned = plan_override.empty() ? root.string("plan") : plan_override.string();
  faults.throw_if_any();
  const fs::path plan_path =
      plan_override.empty() ? resolve_path(folder, planned) : fs::absolute(plan_override);
  const PlanFile plan = load_plan_file(plan_path);
  check_supported(plan);
  JobConfig config = read_job_config(root, {plan.inputs, folder, warnings});
  faults.throw_if_any();
  config.plan = plan_path;
  return config;
}

}  // namespace rpeg
