#include "rpeg/spec/workload_config.h"

#include <fmt/format.h>

#include <set>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/yaml/reader.h"
#include "spec/workload_checks.h"
#include "spec/workload_models.h"
#include "spec/workload_names.h"

namespace rpeg {
namespace {

constexpr double kMost = 1e6;  // of racks, nodes, GPUs, layers, prompts, …: larger is a slip
constexpr Bounds kCount{1, kMost};
constexpr Bounds kTokens{1, 1e8};
constexpr Bounds kPositive{1e-12, 1e12};

ClusterSpec read_cluster(MapReader reader) {
  ClusterSpec cluster;
  const std::size_t before = reader.faults().count();
  cluster.racks = static_cast<int>(reader.integer("racks", kCount));
  cluster.nodes_per_rack = static_cast<int>(reader.integer("nodes_per_rack", kCount));
  cluster.gpus_per_node = static_cast<int>(reader.integer("gpus_per_node", kCount));
  if (reader.has("gpu_hour_price")) {
    cluster.gpu_hour_price = reader.number("gpu_hour_price", kPositive);
  }
  if (reader.has("max_gpus")) {
    cluster.max_gpus = static_cast<int>(reader.integer("max_gpus", kCount));
  }
  reader.ignore("gpu_hour_price");
  reader.ignore("max_gpus");
  reader.finish();
  if (reader.faults().count() == before) {
    check_cluster(cluster, reader);
  }
  return cluster;
}

LengthQuantile read_quantile(const YamlValue& item, const std::string& path, Faults& faults) {
  if (item.kind != YamlValue::Kind::kSequence || item.items.size() != 2) {
    faults.add(item, path, "expected a pair [probability, tokens], like [0.5, 128]");
    return {};
  }
  return {yaml_number(item.items[0], path + "[0]", faults, {1e-9, 1}),
          yaml_number(item.items[1], path + "[1]", faults, {1e-9, 1e8})};
}

WorkloadSpec read_workload(MapReader& reader) {
  WorkloadSpec workload;
  Faults& faults = reader.faults();
  const std::size_t before = faults.count();
  workload.batch_size = reader.integer("batch_size", {1, 1e7});
  workload.samples_per_prompt = reader.integer("samples_per_prompt", {1, 1e5}, 1);
  workload.context_length = reader.integer("context_length", kTokens);
  workload.generation_length = reader.integer("generation_length", kTokens);
  reader.sequence("gen_quantiles", false, [&](const YamlValue& item, const std::string& path) {
    workload.gen_quantiles.push_back(read_quantile(item, path, faults));
  });
  reader.finish();
  if (faults.count() == before) {
    check_quantiles(workload, reader);
  }
  return workload;
}

PolicySpec read_policy(MapReader& reader) {
  PolicySpec policy;
  const std::size_t before = reader.faults().count();
  policy.algorithm = static_cast<Algorithm>(reader.choice("algorithm", words::kAlgorithm));
  policy.dpo_mode = static_cast<DpoMode>(reader.choice("dpo_mode", words::kDpoMode, 0));
  policy.reward = static_cast<RewardSource>(reader.choice("reward", words::kReward, 0));
  policy.allow_ac_share = reader.boolean("allow_ac_share", false);
  policy.kl_reference = reader.boolean("kl_reference", true);
  policy.allow_fusion = reader.boolean("allow_fusion", true);
  policy.recompute_logprobs = reader.boolean("recompute_logprobs", false);
  policy.epochs = reader.integer("epochs", {1, 1000}, 1);
  policy.minibatches = reader.integer("minibatches", kCount, 1);
  reader.finish();
  if (reader.faults().count() == before) {
    check_policy(policy, reader);
  }
  return policy;
}

std::vector<std::int64_t> read_staleness(MapReader& reader, const std::string& key) {
  if (!reader.has(key)) {
    reader.ignore(key);
    return {0};
  }
  std::vector<std::int64_t> result;
  std::set<std::int64_t> seen;
  Faults& faults = reader.faults();
  reader.sequence(key, true, [&](const YamlValue& item, const std::string& path) {
    result.push_back(yaml_integer(item, path, faults, {0, 64}));
    if (!seen.insert(result.back()).second) {
      faults.add(item, path, fmt::format("the budget {} is listed twice", result.back()));
    }
  });
  if (result.empty()) {
    reader.fault(key, "expected at least one staleness budget, like [0]");
  }
  return result;
}

std::optional<std::int64_t> read_optional_count(MapReader& reader,
                                                const std::string& key,
                                                double most) {
  if (!reader.has(key)) {
    reader.ignore(key);
    return std::nullopt;
  }
  return reader.integer(key, {1, most});
}

OptimizerSpec read_optimizer(MapReader reader) {
  OptimizerSpec optimizer;
  const std::size_t before = reader.faults().count();
  optimizer.k_eval = reader.integer("k_eval", {1, 10000}, optimizer.k_eval);
  optimizer.t_init = reader.number("t_init", kPositive, optimizer.t_init);
  optimizer.t_min = reader.number("t_min", kPositive, std::min(optimizer.t_min, optimizer.t_init));
  optimizer.t_warm = reader.number("t_warm", kPositive, optimizer.t_warm);
  optimizer.k_x = reader.integer("k_x", {1, 1000}, optimizer.k_x);
  optimizer.stag_window = reader.integer("stag_window", {1, 1e9}, optimizer.stag_window);
  optimizer.chains = reader.integer("chains", {1, 4096}, optimizer.chains);
  optimizer.zero_stage = reader.integer("zero_stage", {0, 3}, optimizer.zero_stage);
  optimizer.recompute = static_cast<Recompute>(reader.choice("recompute", words::kRecompute, 2));
  optimizer.sequence_parallel = reader.boolean("sequence_parallel", false);
  optimizer.objective = static_cast<Objective>(reader.choice("objective", words::kObjective, 0));
  optimizer.dtype = static_cast<TrainDtype>(reader.choice("dtype", words::kDtype, 0));
  optimizer.evals = read_optional_count(reader, "evals", 1e12);
  optimizer.max_tp = read_optional_count(reader, "max_tp", kMost);
  optimizer.max_pp = read_optional_count(reader, "max_pp", kMost);
  MapReader staleness = reader.map("staleness_candidates", false);
  optimizer.staleness_actor = read_staleness(staleness, "actor");
  optimizer.staleness_critic = read_staleness(staleness, "critic");
  staleness.finish();
  reader.finish();
  if (reader.faults().count() == before) {
    check_temperatures(optimizer, reader);
  }
  return optimizer;
}

OutputSpec read_output(MapReader& reader) {
  OutputSpec output;
  output.plots = reader.boolean("plots", false);
  output.plots_dir = reader.string("plots_dir", "");
  output.log_file = reader.string("log_file", "");
  output.base_plan = reader.string("base_plan", "");
  output.opt_plan = reader.string("opt_plan", "");
  return output;
}

/// The seed stands at top level or inside `output`; both only when they agree.
std::uint64_t read_seed(MapReader& top, MapReader& output) {
  constexpr Bounds kSeed{0, 9.2233720368547e18};
  const std::int64_t outer = top.integer("seed", kSeed, 0);
  const std::int64_t inner = output.integer("seed", kSeed, 0);
  if (top.has("seed") && output.has("seed") && outer != inner) {
    top.fault("seed", fmt::format("is {} here and {} in output.seed; keep one", outer, inner));
  }
  return static_cast<std::uint64_t>(top.has("seed") ? outer : inner);
}

}  // namespace

WorkloadConfig read_workload_config(MapReader& reader, const std::filesystem::path& directory) {
  WorkloadConfig config;
  reader.choice("schema", {"rpeg-workload/1"}, 0);
  const std::size_t before = reader.faults().count();
  config.hardware = read_cluster(reader.map("hardware", true));
  MapReader models = reader.map("models", true);
  for (std::size_t i = 0; i < kModelRoles; ++i) {
    config.models[i] = read_model(models, static_cast<ModelRole>(i), directory);
  }
  models.finish();
  MapReader workload = reader.map("workload", true);
  config.workload = read_workload(workload);
  MapReader policy = reader.map("policy", true);
  config.policy = read_policy(policy);
  config.optimizer = read_optimizer(reader.map("optimizer", false));
  MapReader output = reader.map("output", false);
  config.output = read_output(output);
  config.seed = read_seed(reader, output);
  output.finish();
  if (!reader.is_muted() && reader.faults().count() == before) {
    check_workload_config(config, models, workload, policy);
  }
  return config;
}

WorkloadConfig parse_workload_config(const std::string& text, const std::filesystem::path& file) {
  Faults faults(file.string());
  const YamlValue root = parse_yaml(text, file.string());
  MapReader reader(root, "", faults);
  WorkloadConfig config = read_workload_config(reader, file.parent_path());
  reader.finish();
  faults.throw_if_any();
  return config;
}

WorkloadConfig load_workload_config(const std::filesystem::path& path) {
  return parse_workload_config(read_file(path), path);
}

}  // namespace rpeg
