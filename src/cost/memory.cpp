#include <algorithm>
#include <cmath>

#include "cost/lengths.h"
#include "cost/shard.h"
#include "cost/vertex_rates.h"
#include "rpeg/base/error.h"
#include "rpeg/cost/cost_model.h"

namespace rpeg {
namespace {

/// Weights, gradients and optimizer states of one copy on the rank with most parameters.
MemoryUse static_memory(const Vertex& vertex,
                        const VertexPlan& plan,
                        const WorkloadConfig& config) {
  const ElementBytes bytes = element_bytes(config.optimizer.dtype);
  const double elements =
      largest_stage_elements(config.model(vertex.model), head_of(vertex), plan.parallelism);
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

/// How sequences lie on the ranks of a tensor-parallel group.
struct TensorSplit {
  int tp = 1;
  bool sequences = false;  ///< norms and stored inputs are divided too
};

/// Activation bytes of one layer for `tokens` tokens on one rank (docs/cost-model.md, Memory).
double layer_activation_bytes(const ModelSpec& model,
                              const ElementBytes& bytes,
                              const TensorSplit& split,
                              double tokens,
                              bool keeps_attention) {
  const int tp = split.tp;
  const double hidden = static_cast<double>(model.hidden_dim);
  const double query = static_cast<double>(model.num_heads * model.head_dim) / tp;
  const double key_value = 2.0 * local_kv_heads(model, tp) * static_cast<double>(model.head_dim);
  const double ffn = (model.gated_ffn ? 3.0 : 2.0) * static_cast<double>(model.ffn_dim) / tp;
  // Divided sequences keep one more slice: what the all-gather started from.
  const double residual = split.sequences ? 5.0 * hidden / tp : 4.0 * hidden;
  const double elements = residual + (keeps_attention ? 2.0 : 1.0) * query + key_value + ffn;
  const double statistics = keeps_attention ? 4.0 * static_cast<double>(model.num_heads) / tp : 0.0;
  return tokens * (bytes.activation * elements + statistics);
}

/// A replica's micro-batch at its longest: memory must hold the worst case.
struct LongestCall {
  double tokens = 0.0;
  double head_rows = 0.0;
};

LongestCall longest_generation_call(const VertexPlan& plan, const WorkloadConfig& config) {
  const auto rows =
      static_cast<double>(ceil_divide(replica_batch(plan, config), plan.micro_batches));
  const std::int64_t prompts =
      std::min(ceil_divide(replica_prompts(plan, config), plan.micro_batches),
               prefill_call_prompts(config.workload));
  // A decode step has one row a sequence.
  return {std::max(rows, static_cast<double>(prompts * config.workload.context_length)), rows};
}

LongestCall longest_call(const Vertex& vertex,
                         const VertexPlan& plan,
                         const ResponsePart& part,
                         const WorkloadConfig& config) {
  if (vertex.op == Op::kGenerate) return longest_generation_call(plan, config);
  const bool trains = is_training(vertex.op);
  const PartLengths lengths =
      part_lengths(trains ? whole_response(config.workload) : part, config.workload);
  const std::int64_t batch = batch_units(vertex, config);
  const std::int64_t units =
      trains ? ceil_divide(batch, config.policy.minibatches) : units_in_part(lengths, batch);
  const std::int64_t largest =
      ceil_divide(ceil_divide(units, plan.parallelism.dp), plan.micro_batches);
  const auto sequences = static_cast<double>(largest * sequences_per_unit(vertex, config));
  const double prompt = static_cast<double>(config.workload.context_length);
  return {sequences * (prompt + lengths.tokens_last),
          sequences * (vertex.op == Op::kInferReward ? 1.0 : lengths.tokens_last)};
}

double training_activation_bytes(const ModelSpec& model,
                                 const ElementBytes& bytes,
                                 const VertexPlan& plan,
                                 const OptimizerSpec& optimizer,
                                 double tokens,
                                 int stage) {
  const double in_flight =
      static_cast<double>(std::min<std::int64_t>(plan.micro_batches, plan.parallelism.pp - stage));
  const double kept_layers = in_flight * stage_layer_count(model, plan.parallelism.pp, stage);
  const int tp = plan.parallelism.tp;
  const bool splits = optimizer.sequence_parallel && tp > 1;
  const auto layer = [&](bool keeps_attention) {
    return layer_activation_bytes(model, bytes, {tp, splits}, tokens, keeps_attention);
  };
  switch (optimizer.recompute) {
    case Recompute::kNone:
      return kept_layers * layer(true);
    case Recompute::kSelective:
      return kept_layers * layer(false);
    case Recompute::kFull: {
      const double inputs = tokens * bytes.activation * static_cast<double>(model.hidden_dim);
      return kept_layers * inputs / (splits ? tp : 1) + layer(true);
    }
  }
  throw Error(ErrorKind::kInternal, "cost: unknown recompute mode");
}

/// ZeRO-3 keeps a share of the weights, and beside it what it has gathered for the work at hand: a
/// layer or an output head, whichever is larger.
double gathered_weight_bytes(const Vertex& vertex,
                             const VertexPlan& plan,
                             const WorkloadConfig& config) {
  if (config.optimizer.zero_stage < 3 || !is_training(vertex.op)) return 0.0;
  const ModelSpec& model = config.model(vertex.model);
  const Parallelism& p = plan.parallelism;
  const double layer =
      layer_matrix_elements(model, p.tp) + 2.0 * static_cast<double>(model.hidden_dim);
  const double largest = std::max(layer, head_elements(model, head_of(vertex), p.tp));
  return largest * element_bytes(config.optimizer.dtype).weight * (1.0 - 1.0 / p.dp);
}

/// Of one sequence at its longest, on one stage.
double kv_sequence_bytes(const VertexPlan& plan, const WorkloadConfig& config, int stage) {
  constexpr std::int64_t kPage = 16;  // tokens
  const ModelSpec& model = config.model(ModelRole::kActor);
  const WorkloadSpec& workload = config.workload;
  const std::int64_t pages =
      ceil_divide(workload.context_length + workload.generation_length, kPage);
  return static_cast<double>(pages * kPage) * stage_layer_count(model, plan.parallelism.pp, stage) *
         2.0 * local_kv_heads(model, plan.parallelism.tp) * static_cast<double>(model.head_dim) *
         element_bytes(config.optimizer.dtype).kv;
}

/// What a vertex works on.
struct Work {
  ResponsePart part;
  std::int64_t slots = 0;  ///< sequences of a replica in the KV cache
};

/// Activations, KV cache and logits while the vertex runs, on one stage.
MemoryUse stage_dynamic_memory(const Vertex& vertex,
                               const VertexPlan& plan,
                               const Work& work,
                               const WorkloadConfig& config,
                               int stage) {
  const ModelSpec& model = config.model(vertex.model);
  const ElementBytes bytes = element_bytes(config.optimizer.dtype);
  const LongestCall call = longest_call(vertex, plan, work.part, config);
  const bool trains = is_training(vertex.op);
  const int tp = plan.parallelism.tp;
  const bool splits = config.optimizer.sequence_parallel && tp > 1;
  MemoryUse use;
  use.activations =
      trains ? training_activation_bytes(model, bytes, plan, config.optimizer, call.tokens, stage)
             : layer_activation_bytes(model, bytes, {tp, splits}, call.tokens, true);
  use.activations += gathered_weight_bytes(vertex, plan, config);
  if (vertex.op == Op::kGenerate) {
    use.kv_cache = static_cast<double>(std::min(work.slots, replica_batch(plan, config))) *
                   kv_sequence_bytes(plan, config, stage);
  }
  if (stage == plan.parallelism.pp - 1 && has_vocabulary(head_of(vertex))) {
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
                         const Work& work,
                         const WorkloadConfig& config) {
  MemoryUse worst;
  // In flight falls from stage to stage, logits are on the last: the extremes are at the ends.
  for (const int stage : {0, plan.parallelism.pp - 1}) {
    const MemoryUse use = stage_dynamic_memory(vertex, plan, work, config, stage);
    if (dynamic_bytes(use) > dynamic_bytes(worst)) worst = use;
  }
  return worst;
}

}  // namespace

MemoryUse vertex_memory(const Vertex& vertex,
                        const VertexPlan& plan,
                        const WorkloadConfig& config,
                        const HardwareProfile& profile) {
  const ResponsePart whole = whole_response(config.workload);
  return part_memory(vertex, plan, whole, replica_batch(plan, config), config, profile);
}

MemoryUse part_memory(const Vertex& vertex,
                      const VertexPlan& plan,
                      const ResponsePart& part,
                      std::int64_t slots,
                      const WorkloadConfig& config,
                      const HardwareProfile& profile) {
  MemoryUse use = dynamic_memory(vertex, plan, {part, slots}, config);
  const MemoryUse resident = static_memory(vertex, plan, config);
  use.weights = resident.weights;
  use.optimizer = resident.optimizer;
  use.reserve = profile.reserve_bytes;
  use.total = use.weights + use.optimizer + dynamic_bytes(use) + use.reserve;
  return use;
}

double kv_slot_bytes(const VertexPlan& plan, const WorkloadConfig& config) {
  return kv_sequence_bytes(plan, config, 0);
}

std::int64_t replica_batch(const VertexPlan& plan, const WorkloadConfig& config) {
  const std::int64_t dp = plan.parallelism.dp;
  return (config.workload.sequences() + dp - 1) / dp;
}

}  // namespace rpeg
