// Published GRPO step times of NeMo-RL v0.3 (dense models) beside the model's: generation,
// log-probabilities (policy and reference) and training, each priced alone on the published split.
//   rpeg_published_grpo --data FOLDER --hw configs/hw/h100-dgx.yaml
// FOLDER holds rl_frameworks.csv. What the rows do not state is assumed here, in one place.
// Not predicted is what the framework does and RPEG does not: for the reference's log-probabilities
// it swaps the weights with host memory (three copies of a rank's weights), its generation engine
// takes host time in every step (host_step of hw.yaml, 0 in a fitted profile), and micro-batches
// are padded to their full size on a pipeline.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>

#include "rpeg/base/error.h"
#include "rpeg/search/search.h"

namespace {

using namespace rpeg;
using Row = std::map<std::string, std::string>;

// Not stated: the GPU (the training rates need an H100), GPUs per node, the prompt length, and the
// length distribution, for which measured quantiles of sampled MATH solutions (Qwen2.5-Math's
// public evaluation data, mean 391.5 tokens) are scaled to the published mean.
constexpr int kGpusPerNode = 8;
constexpr std::int64_t kPromptTokens = 150;
constexpr double kEngineMemoryShare = 0.6;  // of the GPU, for weights and KV cache of the engine
const std::vector<LengthQuantile> kMathLengths = {{0.01, 153},
                                                  {0.05, 198},
                                                  {0.1, 221},
                                                  {0.25, 280},
                                                  {0.5, 347},
                                                  {0.75, 450},
                                                  {0.9, 554},
                                                  {0.95, 643},
                                                  {0.99, 1570},
                                                  {1.0, 2110}};
constexpr double kMathMean = 391.5;

/// What a row's configuration file in the framework's repository sets (examples/configs,
/// grpo_math_{8B,8B_megatron,70B_megatron}.yaml): packed micro-batches of so many sequences of the
/// longest length, no activation checkpointing. Megatron runs without sequence parallelism.
struct Setup {
  bool is_megatron = false;
  double train_tokens = 0.0;    ///< of a micro-batch
  double logprob_tokens = 0.0;  ///< of a micro-batch
};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

std::vector<Row> read_rows(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorKind::kUsage, "cannot read " + path);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> names = cells_of(line);
  std::vector<Row> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = cells_of(line);
    Row row;
    for (std::size_t i = 0; i < std::min(names.size(), cells.size()); ++i) {
      row[names[i]] = cells[i];
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

/// The number behind `name` in "TP4 PP4 DP4", or 1.
int degree(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name);
  return at == std::string::npos ? 1 : std::stoi(text.substr(at + name.size()));
}

/// Shapes from the Hugging Face configurations; nothing for a mixture of experts.
std::optional<ModelSpec> model_of(const std::string& name) {
  ModelSpec model;
  model.head_dim = 128;
  if (name.starts_with("Llama-3.1-8B")) {
    model.layers = 32, model.hidden_dim = 4096, model.ffn_dim = 14336, model.vocab_size = 128256;
    model.num_heads = 32, model.num_kv_heads = 8;
  } else if (name.starts_with("Llama-3.1-70B")) {
    model.layers = 80, model.hidden_dim = 8192, model.ffn_dim = 28672, model.vocab_size = 128256;
    model.num_heads = 64, model.num_kv_heads = 8;
  } else if (name == "Qwen3-32B") {
    model.layers = 64, model.hidden_dim = 5120, model.ffn_dim = 25600, model.vocab_size = 151936;
    model.num_heads = 64, model.num_kv_heads = 8;
  } else {
    return std::nullopt;
  }
  return model;
}

Setup setup_of(const Row& row) {
  const bool is_megatron = row.at("train_backend").starts_with("Megatron");
  const double longest = std::stod(row.at("max_total_len"));
  return {is_megatron, longest, (is_megatron ? 4.0 : 2.0) * longest};
}

WorkloadConfig make_config(const Row& row, const ModelSpec& model) {
  WorkloadConfig config;
  const int gpus = std::stoi(row.at("n_gpus"));
  config.hardware.nodes_per_rack = gpus / kGpusPerNode;
  config.hardware.gpus_per_node = kGpusPerNode;
  config.models[static_cast<std::size_t>(ModelRole::kActor)] = model;
  config.models[static_cast<std::size_t>(ModelRole::kReference)] = model;
  config.policy.algorithm = Algorithm::kGrpo;
  config.policy.reward = RewardSource::kVerifier;
  config.policy.recompute_logprobs = true;
  const std::int64_t sequences = std::stoll(row.at("seqs_per_step"));
  config.workload.samples_per_prompt = 32;
  config.workload.batch_size = sequences / 32;
  config.workload.context_length = kPromptTokens;
  const std::int64_t longest = std::stoll(row.at("max_total_len")) - kPromptTokens;
  config.workload.generation_length = longest;
  const double mean = std::stod(row.at("mean_response_len"));
  // Lengths are cut at the limit; the scale is raised until the mean is the published one.
  for (double scale = mean / kMathMean;; scale *= 1.01) {
    config.workload.gen_quantiles.clear();
    for (const LengthQuantile& q : kMathLengths) {
      const double tokens = std::min(q.tokens * scale, static_cast<double>(longest));
      if (!config.workload.gen_quantiles.empty() &&
          tokens <= config.workload.gen_quantiles.back().tokens) {
        break;
      }
      config.workload.gen_quantiles.push_back({q.probability, tokens});
    }
    config.workload.gen_quantiles.back() = {1.0, static_cast<double>(longest)};
    if (expected_length(config.workload) >= 0.99 * mean || scale > 100.0) break;
  }
  config.policy.minibatches = sequences / std::stoll(row.at("train_global_batch"));
  config.optimizer.sequence_parallel = !setup_of(row).is_megatron;
  config.optimizer.recompute = Recompute::kNone;
  config.optimizer.zero_stage = row.at("train_parallel").starts_with("FSDP") ? 3 : 1;
  return config;
}

/// `sequences` go through the model at once, in micro-batches of `packed_tokens`.
VertexPlan plan_of(
    const WorkloadConfig& config, int tp, int pp, double sequences, double packed_tokens) {
  const int gpus = config.hardware.gpu_count();
  VertexPlan plan;
  plan.parallelism = {gpus / tp / pp, pp, tp};
  plan.placement = {{0, 0}, {0, config.hardware.nodes_per_rack - 1}, {0, kGpusPerNode - 1}};
  const double tokens =
      (expected_length(config.workload) + kPromptTokens) * sequences / plan.parallelism.dp;
  const double most = std::floor(sequences / plan.parallelism.dp);
  plan.micro_batches =
      static_cast<std::int64_t>(std::clamp(std::ceil(tokens / packed_tokens), 1.0, most));
  return plan;
}

/// Sequences that the KV cache of one engine holds at their mean length.
std::int64_t engine_slots(const VertexPlan& plan,
                          const WorkloadConfig& config,
                          const HardwareProfile& profile) {
  const double weights =
      2.0 * static_cast<double>(parameter_count(config.model(ModelRole::kActor), false)) /
      plan.parallelism.tp;
  const double longest = static_cast<double>(config.workload.generation_length + kPromptTokens);
  const double mean = expected_length(config.workload) + kPromptTokens;
  const double slot = kv_slot_bytes(plan, config) * mean / longest;
  const double slots = (kEngineMemoryShare * profile.memory_per_gpu - weights) / slot;
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(slots), 1, replica_batch(plan, config));
}

/// One all-gather of the weights over the replicas: what ZeRO-3 adds to ZeRO-2 in one micro-batch,
/// which gathers twice in place of once.
double gather_s(VertexPlan plan, WorkloadConfig config, const HardwareProfile& profile) {
  plan.micro_batches = 1;
  config.policy.minibatches = 1;
  const auto comm_s = [&](std::int64_t zero_stage) {
    config.optimizer.zero_stage = zero_stage;
    return price_vertex({"t_pi", Op::kTrain, ModelRole::kActor}, plan, config, profile).comm_s;
  };
  return comm_s(3) - comm_s(2);
}

std::string cell(double published, double predicted) {
  return fmt::format(
      "{:8.0f} {:6.1f} {:+5.0f}%", published, predicted, 100.0 * (predicted / published - 1.0));
}

void run(const std::string& data, const std::string& hw) {
  const HardwareProfile profile = load_hardware_profile(hw);
  fmt::print("{:24} {:>23} {:>23} {:>23}\n",
             "row (published, predicted s)",
             "generation",
             "log-probabilities",
             "training");
  for (const Row& row : read_rows(data + "/rl_frameworks.csv")) {
    if (row.at("framework") != "NeMo-RL" || row.at("version") != "v0.3.0") continue;
    const auto model = model_of(row.at("model"));
    if (!model || row.at("seqs_per_step").empty()) continue;
    const WorkloadConfig config = make_config(row, *model);
    const std::string& split = row.at("train_parallel");
    const int tp = degree(split, "TP");
    const int pp = degree(split, "PP");
    const auto sequences = static_cast<double>(config.workload.sequences());
    const std::string& engine = row.at("gen_parallel").empty() ? split : row.at("gen_parallel");
    const Setup setup = setup_of(row);
    VertexPlan generate = plan_of(config, degree(engine, "TP"), 1, sequences, setup.logprob_tokens);
    generate.micro_batches = 1;
    const VertexPlan infer = plan_of(config, tp, pp, sequences, setup.logprob_tokens);
    const VertexPlan train = plan_of(config,
                                     tp,
                                     pp,
                                     sequences / static_cast<double>(config.policy.minibatches),
                                     setup.train_tokens);
    const double generation_s = price_part({"g_pi", Op::kGenerate, ModelRole::kActor},
                                           generate,
                                           whole_response(config.workload),
                                           engine_slots(generate, config, profile),
                                           config,
                                           profile)
                                    .total_s;
    double logprob_s = 0.0;
    for (const Vertex& vertex : {Vertex{"i_pi", Op::kInferActor, ModelRole::kActor},
                                 Vertex{"i_ref", Op::kInferReference, ModelRole::kReference}}) {
      logprob_s += price_vertex(vertex, infer, config, profile).total_s;
    }
    if (config.optimizer.zero_stage == 3) {  // log-probabilities run on the sharded weights
      logprob_s +=
          2.0 * static_cast<double>(infer.micro_batches) * gather_s(infer, config, profile);
    }
    const double training_s =
        price_vertex({"t_pi", Op::kTrain, ModelRole::kActor}, train, config, profile).total_s;
    fmt::print("{:24} {} {} {}\n",
               row.at("id"),
               cell(std::stod(row.at("gen_s")), generation_s),
               cell(std::stod(row.at("logprob_s")), logprob_s),
               cell(std::stod(row.at("train_s")), training_s));
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Published GRPO step times beside predictions", "rpeg_published_grpo");
  std::string data, hw;
  app.add_option("--data", data, "Folder with rl_frameworks.csv")->required();
  app.add_option("--hw", hw, "Hardware profile of an H100 80 GB")->required();
  CLI11_PARSE(app, argc, argv);
  try {
    run(data, hw);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
  return 0;
}
