#include "support/layout_job.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/hf/safetensors.h"
#include "rpeg/model/parameters.h"
#include "rpeg/search/evaluation.h"
#include "support/planning.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

const fs::path kDemo = fs::path(RPEG_SOURCE_DIR) / "configs/demo/copy";
constexpr std::int64_t kSeed = 5;

ModelSpec layout_spec(bool tied) {
  ModelSpec spec = load_hf_config(kDemo / "model");
  spec.layers = 4;
  spec.hidden_dim = 32;
  spec.ffn_dim = 48;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 8;
  spec.tied_embeddings = tied;
  spec.initializer_range = 0.2;  // logits far enough apart to sample the same under any rounding
  return spec;
}

}  // namespace

WorkloadConfig layout_inputs(const LayoutJob& options) {
  const ModelSpec spec = layout_spec(options.tied);
  WorkloadConfig inputs;
  inputs.hardware.gpus_per_node = options.gpus;
  const auto set = [&](ModelRole role) { inputs.models[static_cast<std::size_t>(role)] = spec; };
  set(ModelRole::kActor);
  set(ModelRole::kReference);
  if (options.algorithm == Algorithm::kPpo) {
    set(ModelRole::kCritic);
  }
  const bool offline =
      options.algorithm == Algorithm::kDpo && options.dpo_mode == DpoMode::kOffline;
  if (options.reward == RewardSource::kModel && !offline) {
    set(ModelRole::kReward);
  }
  inputs.workload.batch_size = options.prompts;
  inputs.workload.samples_per_prompt = offline ? 1 : options.samples;
  inputs.workload.context_length = 4;
  inputs.workload.generation_length = options.generation_length;
  const auto longest = static_cast<double>(options.generation_length);
  inputs.workload.gen_quantiles = {{0.5, longest / 3}, {0.75, longest / 2}, {1.0, longest}};
  inputs.policy.algorithm = options.algorithm;
  inputs.policy.dpo_mode = options.dpo_mode;
  inputs.policy.reward = offline ? RewardSource::kModel : options.reward;
  inputs.policy.allow_ac_share = options.structure.ac_share;
  inputs.policy.allow_fusion = options.fuse;
  inputs.policy.minibatches = options.minibatches;
  inputs.policy.recompute_logprobs = options.recompute_logprobs;
  inputs.optimizer.recompute = options.recompute;
  inputs.optimizer.zero_stage = options.zero_stage;
  inputs.optimizer.dtype = TrainDtype::kFp32;
  inputs.optimizer.staleness_actor = {options.structure.tau_actor};
  inputs.optimizer.staleness_critic = {options.structure.tau_critic};
  inputs.seed = options.seed;
  return inputs;
}

namespace {

JobConfig config_of(const LayoutJob& options, const fs::path& directory) {
  const fs::path model = directory / "models/actor";
  JobConfig config;
  const auto source = [&](ModelRole role) -> std::optional<ModelSource>& {
    return config.models[static_cast<std::size_t>(role)];
  };
  source(ModelRole::kActor) =
      ModelSource{.path = model, .random_init = true, .seed = kSeed, .init_from = {}};
  if (options.algorithm == Algorithm::kPpo) {
    source(ModelRole::kCritic) =
        ModelSource{.path = {}, .random_init = false, .seed = 0, .init_from = ModelRole::kActor};
  }
  if (options.reward == RewardSource::kModel) {
    source(ModelRole::kReward) = ModelSource{
        .path = directory / "models/reward", .random_init = false, .seed = 0, .init_from = {}};
  }
  config.data.train.path = kDemo / "data/train.jsonl";
  config.verifier.kind = VerifierKind::kCopy;
  config.train.iterations = options.iterations;
  config.train.learning_rate_actor = options.learning_rate;
  config.train.learning_rate_critic = options.learning_rate;
  config.train.minibatches = options.minibatches;
  config.train.policy.kl_coef = options.algorithm == Algorithm::kGrpo ? 0.01 : 0.0;
  config.runtime.metrics_dir = "metrics";
  config.runtime.trace_dir = "trace";
  config.runtime.save_dir = "save";
  config.runtime.rollouts = "rollouts.jsonl";
  config.runtime.publish = options.publish;
  return config;
}

/// A reward model at random, its score head too.
void write_reward_model(const fs::path& directory, bool tied) {
  const ModelSpec spec = layout_spec(tied);
  const ParameterLayout layout = build_parameter_layout(spec, Head::kScalar);
  std::vector<float> weights(static_cast<std::size_t>(layout.total));
  initialise_parameters(spec, layout, kSeed + 1, weights);
  const ParameterTensor& head = layout.tensors.back();
  for (std::int64_t i = 0; i < head.count; ++i) {
    weights[static_cast<std::size_t>(head.offset + i)] = 0.1F * static_cast<float>(i % 7 - 3);
  }
  save_hf_directory(directory, spec, layout, weights, kDemo / "model");
}

}  // namespace

VertexPlan parse_layout(const std::string& text) {
  VertexPlan plan;
  std::string place;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto number = [&](std::size_t from) {
      int value = 0;
      const auto [end, error] =
          std::from_chars(word.data() + from, word.data() + word.size(), value);
      return error == std::errc() && end == word.data() + word.size() ? value : -1;
    };
    if (word.starts_with("dp") && number(2) > 0) {
      plan.parallelism.dp = number(2);
    } else if (word.starts_with("pp") && number(2) > 0) {
      plan.parallelism.pp = number(2);
    } else if (word.starts_with("tp") && number(2) > 0) {
      plan.parallelism.tp = number(2);
    } else if (word.starts_with("m") && number(1) > 0) {
      plan.micro_batches = number(1);
    } else {
      place += (place.empty() ? "" : " ") + word;
    }
  }
  plan.placement = parse_placement(place);
  return plan;
}

PlanFile layout_plan(const LayoutJob& options) {
  PlanFile file;
  file.inputs = layout_inputs(options);
  file.plan.structure = options.structure;
  const Graph graph = build_graph(file.inputs.policy, options.structure);
  for (const Vertex& vertex : graph.vertices) {
    const auto own = options.layouts.find(vertex.name);
    file.plan.vertices.push_back(
        parse_layout(own == options.layouts.end() ? options.elsewhere : own->second));
    // Generation has micro-batches between pipeline stages only.
    if (vertex.op == Op::kGenerate && file.plan.vertices.back().parallelism.pp == 1) {
      file.plan.vertices.back().micro_batches = 1;
    }
  }
  return scheduled(file);
}

PlanFile scheduled(const PlanFile& file) {
  return make_plan_file(evaluate_plan(file.plan, file.inputs, test::small_hardware()), file.inputs);
}

void write_layout_model(const fs::path& directory, bool tied, bool scalar_head) {
  if (scalar_head) {
    write_reward_model(directory, tied);
    return;
  }
  write_file_atomic(directory / "config.json", hf_config_text(layout_spec(tied)));
  write_file_atomic(directory / "tokenizer.json", read_file(kDemo / "model/tokenizer.json"));
  if (fs::exists(kDemo / "model/generation_config.json")) {
    write_file_atomic(directory / "generation_config.json",
                      read_file(kDemo / "model/generation_config.json"));
  }
}

Job compile_layout_job(const LayoutJob& options, const fs::path& directory) {
  return compile_layout_job(options, layout_plan(options), directory);
}

Job compile_layout_job(const LayoutJob& options, const PlanFile& plan, const fs::path& directory) {
  write_layout_model(directory / "models/actor", options.tied, false);
  if (options.reward == RewardSource::kModel) {
    write_layout_model(directory / "models/reward", options.tied, true);
  }
  return compile_job(config_of(options, directory), plan, directory);
}

}  // namespace rpeg
