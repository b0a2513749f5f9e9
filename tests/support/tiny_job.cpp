#include "support/tiny_job.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "job/programs.h"
#include "rpeg/base/file.h"
#include "rpeg/hf/safetensors.h"
#include "rpeg/job/tensors.h"

namespace rpeg {
namespace {

constexpr const char* kTokenizer = R"({
  "added_tokens": [{"id": 0, "content": "S", "special": true},
                   {"id": 1, "content": "E", "special": true}],
  "normalizer": null, "pre_tokenizer": null, "post_processor": null,
  "decoder": {"type": "Fuse"},
  "model": {"type": "BPE", "dropout": null, "unk_token": "U", "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": false,
            "vocab": {"S": 0, "E": 1, "U": 2, "1": 3, "2": 4, "3": 5, ",": 6, "=": 7},
            "merges": []}})";

constexpr const char* kJob = R"(schema: rpeg-job/1
plan: plan.yaml
models:
  actor: {path: models/actor}
  CRITIC
data:
  prompts: data.jsonl
  shuffle: true
reward: {verifier: copy}
train:
  iterations: 5
  learning_rate: {actor: 1.0e-3, critic: 2.0e-3}
sampling: {temperature: 1.0}
runtime:
  backend: cpu
  trace: {dir: trace}
)";

}  // namespace

ModelSpec tiny_spec() {
  ModelSpec spec;
  spec.layers = 2;
  spec.hidden_dim = 8;
  spec.ffn_dim = 12;
  spec.vocab_size = 8;
  spec.head_dim = 4;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.max_positions = 32;
  return spec;
}

WorkloadConfig tiny_inputs(Algorithm algorithm) {
  WorkloadConfig inputs;
  inputs.hardware.nodes_per_rack = 2;
  inputs.hardware.gpus_per_node = 4;
  inputs.models[static_cast<std::size_t>(ModelRole::kActor)] = tiny_spec();
  inputs.models[static_cast<std::size_t>(ModelRole::kReference)] = tiny_spec();
  if (algorithm == Algorithm::kPpo) {
    inputs.models[static_cast<std::size_t>(ModelRole::kCritic)] = tiny_spec();
  }
  inputs.workload.batch_size = 8;
  inputs.workload.samples_per_prompt = 2;
  inputs.workload.context_length = 12;
  inputs.workload.generation_length = 4;
  inputs.policy.algorithm = algorithm;
  inputs.policy.reward = RewardSource::kVerifier;
  inputs.seed = 7;
  return inputs;
}

PlanFile tiny_plan(const WorkloadConfig& inputs,
                   const std::map<std::string, std::string>& placements,
                   const Structure& structure) {
  PlanFile file;
  file.inputs = inputs;
  file.plan.structure = structure;
  const Graph graph = build_graph(inputs.policy, structure);
  for (const Vertex& vertex : graph.vertices) {
    const auto at = placements.find(vertex.name);
    const std::string text = at == placements.end() ? "r0 n[0-0] g[0-0]" : at->second;
    const std::size_t split = text.find(" as ");
    VertexPlan plan;
    plan.placement = parse_placement(text.substr(0, split));
    plan.parallelism.dp = plan.placement.gpu_count();
    if (split != std::string::npos) {
      std::istringstream numbers(text.substr(split + 4));
      numbers >> plan.parallelism.dp >> plan.parallelism.pp >> plan.parallelism.tp;
    }
    file.plan.vertices.push_back(plan);
  }
  const auto stages = static_cast<int>(response_parts(structure.cuts, inputs.workload).size());
  for (const Vertex& vertex : fuse_graph(graph, stages).graph.vertices) {
    file.schedule.push_back({vertex.name, 0, static_cast<std::int64_t>(file.schedule.size())});
  }
  file.predicted.iteration_time_s = 0.25;
  file.predicted.throughput_tokens_per_s = 1024.0;
  return file;
}

Job tiny_job(const PlanFile& plan, Publish publish) {
  Job job;
  job.inputs = plan.inputs;
  job.plan = plan.plan;
  job.schedule = plan.schedule;
  job.predicted = plan.predicted;
  job.config.runtime.publish = publish;
  job.config.train.iterations = 5;
  job.config.train.minibatches = plan.inputs.policy.minibatches;
  build_task_graph(&job);
  build_execution(&job);
  return job;
}

void write_tiny_model(const std::filesystem::path& directory, const ModelSpec& spec) {
  write_file_atomic(directory / "config.json", hf_config_text(spec));
  write_file_atomic(directory / "tokenizer.json", kTokenizer);
  const auto tensors = model_tensors(spec, false);
  std::vector<std::vector<float>> values;
  std::vector<TensorView> views;
  values.reserve(tensors.size());
  views.reserve(tensors.size());
  for (const ModelTensor& tensor : tensors) {
    values.emplace_back(static_cast<std::size_t>(tensor.count), 0.5F);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    views.push_back({tensors[i].name, tensors[i].shape, values[i]});
  }
  write_file_atomic(directory / "model.safetensors", safetensors_bytes(views));
}

std::filesystem::path write_tiny_job(const std::filesystem::path& directory,
                                     const PlanFile& plan,
                                     const std::map<std::string, std::string>& replace) {
  write_tiny_model(directory / "models/actor", tiny_spec());
  std::string data;
  for (int i = 0; i < 6; ++i) {
    data += fmt::format("{{\"prompt\": \"{}2=\", \"answer\": \"12\"}}\n", 1 + i % 3);
  }
  write_file_atomic(directory / "data.jsonl", data);
  write_file_atomic(directory / "plan.yaml", plan_file_text(plan, nullptr));
  const bool is_ppo = plan.inputs.policy.algorithm == Algorithm::kPpo;
  std::istringstream lines(kJob);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    if (line == "  CRITIC") {
      line = is_ppo ? "  critic: {init_from: actor}" : "";
    }
    const auto at = replace.find(line);
    const std::string& written = at == replace.end() ? line : at->second;
    text += written.empty() ? "" : written + "\n";
  }
  write_file_atomic(directory / "job.yaml", text);
  return directory / "job.yaml";
}

}  // namespace rpeg
