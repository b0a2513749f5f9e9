#include <algorithm>
#include <cmath>

#include "cost/shard.h"
#include "rpeg/base/error.h"
#include "rpeg/cost/cost_model.h"

namespace rpeg {
namespace {

double ceil_divide(double a, double b) { return std::ceil(a / b); }

/// Weights, gradients and optimizer states of one copy on the rank with most parameters.
MemoryUse static_memory(const Vertex& vertex,
                        const VertexPlan& plan,
                        const WorkloadConfig& config) {
  const ElementBytes bytes = element_bytes(config.optimizer.dtype);
  const double elements =
      largest_stage_elements(config.model(vertex.model), vertex.model, plan.parallelism);
  MemoryUse use;
  use.weights = elements * bytes.weight;
  if (is_training(vertex.op)) {
    const std::int64_t zero = config.optimizer.zero_stage;
    const int dp = plan.parallelism.dp;
    if (zero >= 3) use.weights /= dp;
    use.optimizer =
        elements * (bytes.gradient / (zero >= 2 ? dp : 1) + bytes.optimizer / (zero >= 1 ? dp : 1));
  }
  return use;
}

/// Activation bytes of one layer for `tokens` tokens on one rank (docs/cost-model.md, Memory).
double layer_activation_bytes(const ModelSpec& model,
                              const ElementBytes& bytes,
                              int tp,
                              double tokens,
                              bool keeps_attention) {
  const double hidden = static_cast<double>(model.hidden_dim);
  const double query = static_cast<double>(model.num_heads * model.head_dim) / tp;
  const double key_value = 2.0 * local_kv_heads(model, tp) * static_cast<double>(model.head_dim);
  const double ffn = (model.gated_ffn ? 3.0 : 2.0) * static_cast<double>(model.ffn_dim) / tp;
  const double elements = 4.0 * hidden + (keeps_attention ? 2.0 : 1.0) * query + key_value + ffn;
  const double statistics = keeps_attention ? 4.0 * static_cast<double>(model.num_heads) / tp : 0.0;
  return tokens * (bytes.activation * elements + statistics);
}

/// A replica's micro-batch at its longest: memory must hold the worst case.
struct LongestCall {
  double sequences = 0.0;
  double tokens = 0.0;
  double head_rows = 0.0;
};

LongestCall longest_call(const Vertex& vertex,
                         const VertexPlan& plan,
                         const WorkloadConfig& config) {
  const WorkloadSpec& workload = config.workload;
  double units = static_cast<double>(batch_units(vertex, config));
  if (is_training(vertex.op)) {
    units = ceil_divide(units, static_cast<double>(config.policy.minibatches));
  }
  const double per_replica = ceil_divide(units, plan.parallelism.dp);
  LongestCall call;
  call.sequences = ceil_divide(per_replica, static_cast<double>(plan.micro_batches)) *
                   static_cast<double>(sequences_per_unit(vertex, config));
  const double response = static_cast<double>(workload.generation_length);
  const double prompt = static_cast<double>(workload.context_length);
  const bool generates = vertex.op == Op::kGenerate;
  call.tokens = call.sequences * (generates ? prompt : prompt + response);
  call.head_rows = call.sequences * (generates || vertex.op == Op::kInferReward ? 1.0 : response);
  return call;
}

double training_activation_bytes(const ModelSpec& model,
                                 const ElementBytes& bytes,
                                 const VertexPlan& plan,
                                 Recompute recompute,
                                 const LongestCall& call,
                                 int stage) {
  const auto [first, last] = stage_layers(model.layers, plan.parallelism.pp, stage);
  const double in_flight =
      static_cast<double>(std::min<std::int64_t>(plan.micro_batches, plan.parallelism.pp - stage));
  const double kept_layers = in_flight * static_cast<double>(last - first);
  const auto layer = [&](bool keeps_attention) {
    return layer_activation_bytes(model, bytes, plan.parallelism.tp, call.tokens, keeps_attention);
  };
  switch (recompute) {
    case Recompute::kNone:
      return kept_layers * layer(true);
    case Recompute::kSelective:
      return kept_layers * layer(false);
    case Recompute::kFull: {
      const double inputs = call.tokens * bytes.activation * static_cast<double>(model.hidden_dim);
      return kept_layers * inputs + layer(true);
    }
  }
  throw Error(ErrorKind::kInternal, "cost: unknown recompute mode");
}

double kv_cache_bytes(const ModelSpec& model,
                      const ElementBytes& bytes,
                      const VertexPlan& plan,
                      const WorkloadConfig& config,
                      int stage) {
  constexpr double kPage = 16.0;  // tokens
  const WorkloadSpec& workload = config.workload;
  const auto [first, last] = stage_layers(model.layers, plan.parallelism.pp, stage);
  const double sequences =
      ceil_divide(static_cast<double>(workload.sequences()), plan.parallelism.dp);
  const double tokens =
      ceil_divide(static_cast<double>(workload.context_length + workload.generation_length),
                  kPage) *
      kPage;
  return sequences * tokens * static_cast<double>(last - first) * 2.0 *
         local_kv_heads(model, plan.parallelism.tp) * static_cast<double>(model.head_dim) *
         bytes.kv;
}

/// Activations, KV cache and logits while the vertex runs, on one stage.
MemoryUse stage_dynamic_memory(const Vertex& vertex,
                               const VertexPlan& plan,
                               const WorkloadConfig& config,
                               int stage) {
  const ModelSpec& model = config.model(vertex.model);
  const ElementBytes bytes = element_bytes(config.optimizer.dtype);
  const LongestCall call = longest_call(vertex, plan, config);
  const bool trains = is_training(vertex.op);
  const int tp = plan.parallelism.tp;
  MemoryUse use;
  use.activations = trains ? training_activation_bytes(
                                 model, bytes, plan, config.optimizer.recompute, call, stage)
                           : layer_activation_bytes(model, bytes, tp, call.tokens, true);
  if (vertex.op == Op::kGenerate) use.kv_cache = kv_cache_bytes(model, bytes, plan, config, stage);
  if (stage == plan.parallelism.pp - 1 && !has_scalar_head(vertex.model)) {
    // The head's output, an fp32 copy where it is narrower, and the gradient when training.
    const double per_logit =
        bytes.activation + (bytes.activation < 4.0 ? 4.0 : 0.0) + (trains ? 4.0 : 0.0);
    use.logits = per_logit * call.head_rows * padded_vocab(model, tp) / tp;
  }
  return use;
}

double dynamic_bytes(const MemoryUse& use) { return use.activations + use.kv_cache + use.logits; }

MemoryUse dynamic_memory(const Vertex& vertex,
                         const VertexPlan& plan,
                         const WorkloadConfig& config) {
  MemoryUse worst;
  // In flight falls from stage to stage, logits are on the last: the extremes are at the ends.
  for (const int stage : {0, plan.parallelism.pp - 1}) {
    const MemoryUse use = stage_dynamic_memory(vertex, plan, config, stage);
    if (dynamic_bytes(use) > dynamic_bytes(worst)) worst = use;
  }
  return worst;
}

}  // namespace

MemoryUse vertex_memory(const Vertex& vertex,
                        const VertexPlan& plan,
                        const WorkloadConfig& config,
                        const HardwareProfile& profile) {
  MemoryUse use = dynamic_memory(vertex, plan, config);
  const MemoryUse resident = static_memory(vertex, plan, config);
  use.weights = resident.weights;
  use.optimizer = resident.optimizer;
  use.reserve = profile.reserve_bytes;
  use.total = use.weights + use.optimizer + dynamic_bytes(use) + use.reserve;
  return use;
}

MemoryUse part_memory(const Vertex& vertex,
                      const VertexPlan& plan,
                      const ResponsePart&,
                      std::int64_t,
                      const WorkloadConfig& config,
                      const HardwareProfile& profile) {
  return vertex_memory(vertex, plan, config, profile);
}

double kv_slot_bytes(const VertexPlan& plan, const WorkloadConfig& config) {
  const ElementBytes bytes = element_bytes(config.optimizer.dtype);
  return kv_cache_bytes(config.model(ModelRole::kActor), bytes, plan, config, 0) /
         static_cast<double>(replica_batch(plan, config));
}

std::int64_t replica_batch(const VertexPlan& plan, const WorkloadConfig& config) {
  const std::int64_t dp = plan.parallelism.dp;
  return (config.workload.sequences() + dp - 1) / dp;
}

}  // namespace rpeg
