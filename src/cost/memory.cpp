#include "cost/memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "cost/lengths.h"
#include "cost/shard.h"
#include "cost/vertex_rates.h"
#include "rpeg/base/error.h"
#include "rpeg/base/units.h"

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

MemoryUse dynamic_memory(const Vertex& vertex,
                         const VertexPlan& plan,
                         const WorkloadConfig& config) {
  const Work whole{whole_response(config.workload), replica_batch(plan, config)};
  return dynamic_memory(vertex, plan, whole, config);
}

/// What a vertex keeps on its GPUs between its turns.
struct Resident {
  std::size_t copy = 0;  ///< vertices with the same number share one copy of the weights
  double weights = 0.0;
  double optimizer = 0.0;
};

/// Iterations by which the weights of vertex i may be older than the newest.
std::int64_t staleness(const Graph& graph, std::size_t i) {
  for (const Edge& edge : graph.edges) {
    if (edge.kind == EdgeKind::kWeights && index(edge.to) == i) return edge.delta - 1;
  }
  return 0;
}

std::vector<Resident> resident_memory(const Plan& plan,
                                      const Graph& graph,
                                      const WorkloadConfig& config) {
  std::vector<Resident> residents(graph.vertices.size());
  for (std::size_t i = 0; i < residents.size(); ++i) {
    const MemoryUse use = static_memory(graph.vertices[i], plan.vertices[i], config);
    const bool stale = staleness(graph, i) > 0;
    // A stale consumer reads one version while the next arrives beside it.
    residents[i] = {i, use.weights * (stale ? 2.0 : 1.0), use.optimizer};
    for (std::size_t j = 0; !stale && j < i; ++j) {
      const bool shares = graph.vertices[j].model == graph.vertices[i].model &&
                          staleness(graph, j) == 0 &&
                          same_layout(plan.vertices[i], plan.vertices[j]);
      if (shares) residents[i].copy = residents[j].copy;
      if (shares) break;
    }
  }
  return residents;
}

/// Bytes of one GPU of a cell; `busiest` is the vertex with the largest working memory there.
struct CellMemory {
  MemoryUse use;
  std::size_t busiest = 0;
};

CellMemory cell_memory(std::uint32_t users,
                       const std::vector<Resident>& residents,
                       const std::vector<MemoryUse>& dynamics,
                       double reserve_bytes) {
  CellMemory cell;
  double most = -1.0;
  for (std::size_t i = 0; i < residents.size(); ++i) {
    if ((users >> i & 1U) == 0) continue;
    cell.use.optimizer += residents[i].optimizer;
    if (residents[i].copy == i) {
      // Sharers differ only where ZeRO-3 splits the trainer's weights: the full copy counts.
      double weights = residents[i].weights;
      for (std::size_t j = i + 1; j < residents.size(); ++j) {
        if (residents[j].copy == i) weights = std::max(weights, residents[j].weights);
      }
      cell.use.weights += weights;
    }
    if (dynamic_bytes(dynamics[i]) > most) {
      most = dynamic_bytes(dynamics[i]);
      cell.busiest = i;
    }
  }
  cell.use.activations = dynamics[cell.busiest].activations;
  cell.use.kv_cache = dynamics[cell.busiest].kv_cache;
  cell.use.logits = dynamics[cell.busiest].logits;
  cell.use.reserve = reserve_bytes;
  cell.use.total = cell.use.weights + cell.use.optimizer + most + reserve_bytes;
  return cell;
}

std::string describe_overflow(const Graph& graph,
                              const PlacementCell& cell,
                              const CellMemory& memory,
                              const std::vector<Resident>& residents,
                              double limit_bytes) {
  const int count = cell.box.gpu_count();
  std::string text = fmt::format(
      "GPU r{} n{} g{} needs {} ({:.0f} bytes) but has {} ({:.0f} bytes){}:",
      cell.box.racks.first,
      cell.box.nodes.first,
      cell.box.gpus.first,
      format_bytes(memory.use.total),
      memory.use.total,
      format_bytes(limit_bytes),
      limit_bytes,
      count > 1 ? fmt::format(", like all {} GPUs of {}", count, placement_text(cell.box)) : "");
  for (std::size_t i = 0; i < residents.size(); ++i) {
    if ((cell.users >> i & 1U) == 0) continue;
    const Resident& resident = residents[i];
    text += fmt::format(" {} weights {}", graph.vertices[i].name, format_bytes(resident.weights));
    if (resident.copy != i) text += " (shared with " + graph.vertices[resident.copy].name + ")";
    if (resident.optimizer > 0.0) {
      text += fmt::format(", gradients and optimizer {}", format_bytes(resident.optimizer));
    }
    text += ";";
  }
  const MemoryUse& use = memory.use;
  text += fmt::format(" while {} runs: activations {}, KV cache {}, logits {}; reserve {}",
                      graph.vertices[memory.busiest].name,
                      format_bytes(use.activations),
                      format_bytes(use.kv_cache),
                      format_bytes(use.logits),
                      format_bytes(use.reserve));
  return text;
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

PlanMemory plan_memory(const Plan& plan,
                       const Graph& graph,
                       const WorkloadConfig& config,
                       const HardwareProfile& profile,
                       const std::vector<PlacementCell>& cells) {
  PlanMemory result;
  result.vertices.resize(graph.vertices.size());
  result.limit_bytes = profile.memory_per_gpu;
  const std::vector<Resident> residents = resident_memory(plan, graph, config);
  std::vector<MemoryUse> dynamics;
  dynamics.reserve(graph.vertices.size());
  for (std::size_t i = 0; i < graph.vertices.size(); ++i) {
    dynamics.push_back(dynamic_memory(graph.vertices[i], plan.vertices[i], config));
  }
  for (const PlacementCell& cell : cells) {
    const CellMemory memory = cell_memory(cell.users, residents, dynamics, profile.reserve_bytes);
    for (std::size_t i = 0; i < residents.size(); ++i) {
      const bool fuller = memory.use.total > result.vertices[i].total;
      if ((cell.users >> i & 1U) != 0 && fuller) result.vertices[i] = memory.use;
    }
    const double excess = memory.use.total / result.limit_bytes - 1.0;
    if (excess > 0.0) result.overflow += excess * cell.box.gpu_count();
    if (memory.use.total <= result.peak_bytes) continue;
    result.peak_bytes = memory.use.total;
    if (excess > 0.0) {
      result.overflow_text = describe_overflow(graph, cell, memory, residents, result.limit_bytes);
    }
  }
  result.overflow /= config.hardware.gpu_count();
  return result;
}

}  // namespace rpeg
