// Writes the compiled jobs that rewrites_bench.py runs in pairs, and prints the memory of each: PPO
// with actor, critic, reference (4 layers, 256 wide) and a reward model of 12 layers, generation
// apart from the rest or all on one rank; and a small GRPO job on which tracing weighs most.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "rpeg/base/file.h"
#include "rpeg/hf/safetensors.h"
#include "rpeg/job/compile.h"
#include "rpeg/job/memory.h"
#include "rpeg/model/parameters.h"
#include "rpeg/search/evaluation.h"
#include "support/planning.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

const fs::path kDemo = fs::path(RPEG_SOURCE_DIR) / "configs/demo/copy";
// With as good as uniform logits a response of the 40-token model ends after 40 tokens on average.
constexpr const char* kCharacters = "0123456789=abcdefghijklmnopqrstuvwxyzABC";
constexpr std::size_t kStop = 11;

struct Case {
  std::string name;
  Algorithm algorithm = Algorithm::kPpo;
  bool is_split = false;  ///< generation on rank 0, everything else on rank 1
  bool has_trace = true;
  Structure structure = {};
};

std::vector<Case> all_cases() {
  std::vector<Case> cases = {
      {.name = "split", .is_split = true},
      {.name = "split_cuts", .is_split = true, .structure = {.cuts = 3}},
      {.name = "split_tau1", .is_split = true},
      {.name = "two_trunks"},
      {.name = "shared_trunk", .structure = {.ac_share = true}},
      {.name = "small", .algorithm = Algorithm::kGrpo},
      {.name = "small_untraced", .algorithm = Algorithm::kGrpo, .has_trace = false},
  };
  cases[2].structure.tau_actor = cases[2].structure.tau_critic = 1;
  return cases;
}

ModelSpec spec_of(const Case& which, ModelRole role = ModelRole::kActor) {
  const bool is_small = which.algorithm == Algorithm::kGrpo;
  ModelSpec spec = load_hf_config(kDemo / "model");
  spec.layers = is_small ? 2 : role == ModelRole::kReward ? 12 : 4;
  spec.hidden_dim = is_small ? 64 : 256;
  spec.ffn_dim = is_small ? 172 : 688;
  spec.num_heads = is_small ? 4 : 8;
  spec.num_kv_heads = is_small ? 4 : 8;
  spec.head_dim = spec.hidden_dim / spec.num_heads;
  spec.vocab_size = static_cast<std::int64_t>(std::string(kCharacters).size());
  spec.max_positions = 128;
  return spec;
}

void write_tokenizer(const fs::path& directory) {
  std::string vocabulary;
  const std::string characters = kCharacters;
  for (std::size_t i = 0; i < characters.size(); ++i) {
    vocabulary += fmt::format("{}\"{}\": {}", i == 0 ? "" : ", ", characters[i], i);
  }
  write_file_atomic(
      directory / "tokenizer.json",
      fmt::format(R"({{"added_tokens": [{{"id": {}, "content": "{}", "special": true}}],
"normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": {{"type": "Fuse"}},
"model": {{"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false,
"byte_fallback": false, "ignore_merges": false, "vocab": {{{}}}, "merges": []}}}})",
                  kStop,
                  characters[kStop],
                  vocabulary));
  write_file_atomic(directory / "generation_config.json",
                    fmt::format("{{\"eos_token_id\": {}}}\n", kStop));
}

void write_models(const fs::path& directory, const Case& which) {
  write_file_atomic(directory / "models/actor/config.json", hf_config_text(spec_of(which)));
  write_tokenizer(directory / "models/actor");
  const ModelSpec spec = spec_of(which, ModelRole::kReward);
  const ParameterLayout layout = build_parameter_layout(spec, Head::kScalar);
  std::vector<float> weights(static_cast<std::size_t>(layout.total));
  initialise_parameters(spec, layout, 6, weights);
  const ParameterTensor& head = layout.tensors.back();
  for (std::int64_t i = 0; i < head.count; ++i) {
    weights[static_cast<std::size_t>(head.offset + i)] = 0.1F * static_cast<float>(i % 7 - 3);
  }
  save_hf_directory(directory / "models/reward", spec, layout, weights, directory / "models/actor");
}

WorkloadConfig inputs_of(const Case& which) {
  WorkloadConfig inputs;
  inputs.hardware.gpus_per_node = 2;
  const bool is_ppo = which.algorithm == Algorithm::kPpo;
  for (const ModelRole role :
       {ModelRole::kActor, ModelRole::kCritic, ModelRole::kReference, ModelRole::kReward}) {
    if (is_ppo || role == ModelRole::kActor || role == ModelRole::kReference) {
      inputs.models[static_cast<std::size_t>(role)] = spec_of(which, role);
    }
  }
  inputs.workload.batch_size = 16;
  inputs.workload.samples_per_prompt = 2;
  inputs.workload.context_length = 4;
  inputs.workload.generation_length = is_ppo ? 96 : 8;
  if (is_ppo) {  // of a geometric distribution with mean 40
    inputs.workload.gen_quantiles = {{0.5, 28}, {0.75, 55}, {1.0, 96}};
  }
  inputs.policy.algorithm = which.algorithm;
  inputs.policy.reward = is_ppo ? RewardSource::kModel : RewardSource::kVerifier;
  inputs.policy.allow_ac_share = which.structure.ac_share;
  inputs.policy.allow_fusion = which.structure.cuts != 0;
  inputs.optimizer.recompute = Recompute::kNone;
  inputs.optimizer.dtype = TrainDtype::kFp32;
  inputs.optimizer.staleness_actor = {which.structure.tau_actor};
  inputs.optimizer.staleness_critic = {which.structure.tau_critic};
  inputs.seed = 1;
  return inputs;
}

PlanFile plan_of(const Case& which) {
  PlanFile file;
  file.inputs = inputs_of(which);
  file.plan.structure = which.structure;
  for (const Vertex& vertex : build_graph(file.inputs.policy, which.structure).vertices) {
    VertexPlan plan;
    const bool is_elsewhere = which.is_split && vertex.op != Op::kGenerate;
    plan.placement = parse_placement(is_elsewhere ? "r0 n[0-0] g[1-1]" : "r0 n[0-0] g[0-0]");
    file.plan.vertices.push_back(plan);
  }
  return make_plan_file(evaluate_plan(file.plan, file.inputs, test::small_hardware()), file.inputs);
}

JobConfig config_of(const Case& which, std::int64_t iterations, const fs::path& directory) {
  JobConfig config;
  const auto set = [&](ModelRole role, const ModelSource& source) {
    config.models[static_cast<std::size_t>(role)] = source;
  };
  set(ModelRole::kActor,
      {.path = directory / "models/actor", .random_init = true, .seed = 5, .init_from = {}});
  if (which.algorithm == Algorithm::kPpo) {
    set(ModelRole::kCritic,
        {.path = {}, .random_init = false, .seed = 0, .init_from = ModelRole::kActor});
    set(ModelRole::kReward,
        {.path = directory / "models/reward", .random_init = false, .seed = 0, .init_from = {}});
  }
  config.data.train.path = kDemo / "data/train.jsonl";
  const bool is_small = which.algorithm == Algorithm::kGrpo;
  config.verifier.kind = is_small ? VerifierKind::kCopy : VerifierKind::kNone;
  config.train.iterations = is_small ? 40 * iterations : iterations;
  // Small enough that rounding does not change a token, large enough to be an update.
  config.train.learning_rate_actor = config.train.learning_rate_critic = 1e-5;
  config.runtime.metrics_dir = "metrics";
  config.runtime.rollouts = "rollouts.jsonl";
  if (which.has_trace) {
    config.runtime.trace_dir = "trace";
  }
  return config;
}

void write_case(const Case& which, std::int64_t iterations, const fs::path& out) {
  const fs::path directory = fs::absolute(out / which.name);
  fs::remove_all(directory);
  write_models(directory, which);
  const Job job = compile_job(config_of(which, iterations, directory), plan_of(which), directory);
  write_file_atomic(directory / "run.yaml", job_text(job, nullptr));
  int rank = 0;
  for (const RankMemory& memory : rank_memory(job)) {
    fmt::print(
        "{{\"case\": \"{}\", \"rank\": {}, \"weights\": {}, \"gradients\": {}, "
        "\"optimizer\": {}, \"activations\": {}, \"total\": {}}}\n",
        which.name,
        rank++,
        memory.weights,
        memory.gradients,
        memory.optimizer,
        memory.activations,
        memory.total());
  }
}

}  // namespace
}  // namespace rpeg

int main(int argc, char** argv) {
  CLI::App app("Writes the jobs of rewrites_bench.py and prints their memory, a JSON line a rank.");
  std::string out;
  std::int64_t iterations = 5;
  app.add_option("--out", out, "directory for the jobs")->required();
  app.add_option("--iterations", iterations, "iterations of a run; 40 times as many of the small");
  CLI11_PARSE(app, argc, argv);
  try {
    for (const rpeg::Case& which : rpeg::all_cases()) {
      rpeg::write_case(which, iterations, out);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
