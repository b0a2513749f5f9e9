#include "rpeg/job/memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "job/layout.h"
#include "rpeg/base/error.h"
#include "rpeg/base/units.h"

namespace rpeg {
namespace {

constexpr std::int64_t kElementBytes = 4;  // fp32
constexpr std::int64_t kMoments = 2;       // of AdamW
constexpr std::int64_t kLogitRows = 256;   // of a block, at most

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The shard of a copy that a rank has.
std::int64_t shard_elements(const Job& job, const WeightCopy& copy, const BlockPlace& place) {
  const ModelSpec& spec = job.inputs.model(copy.model);
  const Block& block = job.blocks[static_cast<std::size_t>(copy.block)];
  std::int64_t elements = 0;
  for (const ShardTensor& tensor : shard_tensors(spec, copy.head, shard_at(spec, block, place))) {
    elements += tensor.count;
  }
  return elements;
}

void add_copies(const Job& job, std::vector<RankMemory>* memory) {
  for (const WeightCopy& copy : job.copies) {
    const Block& block = job.blocks[static_cast<std::size_t>(copy.block)];
    const std::int64_t zero = job.inputs.optimizer.zero_stage;
    const std::int64_t shares = zero >= 1 ? block.parallelism.dp : 1;
    std::map<std::pair<int, int>, std::int64_t> bytes_of;  // by pp, tp
    for (const int rank : block.ranks) {
      const BlockPlace place = place_in_block(block, rank).value();
      auto [known, is_new] = bytes_of.try_emplace({place.pp, place.tp}, 0);
      if (is_new) {
        known->second = kElementBytes * shard_elements(job, copy, place);
      }
      const std::int64_t bytes = known->second;
      RankMemory& use = (*memory)[static_cast<std::size_t>(rank)];
      use.weights += bytes * (1 + copy.tau);
      if (copy.is_trained) {
        use.gradients += bytes;
        use.optimizer += kMoments * ceil_divide(bytes, shares);
      }
    }
  }
}

void add_messages(const Job& job, std::vector<RankMemory>* memory) {
  for (const WeightTransfer& transfer : job.transfers) {
    for (const WeightMessage& message : transfer.messages) {
      (*memory)[static_cast<std::size_t>(message.from)].sending += message.bytes;
    }
  }
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    for (const Instruction& instruction : job.ranks[rank].program) {
      if (instruction.kind == InstructionKind::kSend ||
          instruction.kind == InstructionKind::kReceive) {
        (*memory)[rank].messages += instruction.capacity_bytes;
      }
    }
  }
}

/// Activation bytes of one layer for `tokens` tokens on one rank (docs/cost-model.md, Memory).
std::int64_t layer_bytes(const ModelSpec& spec, int tp, std::int64_t tokens, bool keeps_attention) {
  const auto [first_head, last_head] = key_value_heads(spec, tp, 0);
  const std::int64_t query = spec.num_heads / tp * spec.head_dim;
  const std::int64_t elements = 4 * spec.hidden_dim + (keeps_attention ? 2 : 1) * query +
                                2 * (last_head - first_head) * spec.head_dim +
                                3 * spec.ffn_dim / tp;
  const std::int64_t statistics = keeps_attention ? spec.num_heads / tp : 0;
  return kElementBytes * tokens * (elements + statistics);
}

/// Sequences of the largest micro-batch of a replica.
std::int64_t micro_batch_sequences(const Job& job, VertexId vertex) {
  const Vertex& what = job.graph.vertices[index(vertex)];
  const VertexPlan& plan = plan_of(job, vertex);
  const ReplicaWork work = replica_work(job, vertex, 0);
  const std::int64_t unit = unit_sequences(what, job.inputs);
  std::int64_t units = sequence_count(work.sequences.empty() ? work.slots : work.sequences) / unit;
  if (is_training(what.op)) {
    units = ceil_divide(units, job.config.train.minibatches);
  }
  // Of a prompt of online DPO two samples are trained.
  return ceil_divide(units, plan.micro_batches) * (unit > 1 ? 2 : 1);
}

/// What a vertex needs on one rank while it runs: KV cache, activations, logits.
RankMemory working_memory(const Job& job, VertexId vertex, const BlockPlace& place) {
  const Vertex& what = job.graph.vertices[index(vertex)];
  const VertexPlan& plan = plan_of(job, vertex);
  const Parallelism& p = plan.parallelism;
  const ModelSpec& spec = job.inputs.model(what.model);
  const WorkloadSpec& workload = job.inputs.workload;
  const auto [first_layer, last_layer] = stage_layers(spec.layers, p.pp, place.pp);
  const std::int64_t layers = last_layer - first_layer;
  const std::int64_t length = workload.context_length + workload.generation_length;
  const std::int64_t sequences = micro_batch_sequences(job, vertex);
  std::int64_t tokens = sequences * length;
  RankMemory use;
  use.busiest = vertex;
  if (what.op == Op::kGenerate) {
    const auto [first_head, last_head] = key_value_heads(spec, p.tp, place.tp);
    use.kv_cache = kElementBytes * sequence_count(replica_work(job, vertex, 0).sequences) * length *
                   layers * 2 * (last_head - first_head) * spec.head_dim;
    tokens = std::max(sequences, workload.context_length);
  }
  use.activations = layer_bytes(spec, p.tp, tokens, true);
  if (is_training(what.op)) {
    const std::int64_t in_flight =
        std::min<std::int64_t>(plan.micro_batches, p.pp - place.pp) * layers;
    switch (job.inputs.optimizer.recompute) {
      case Recompute::kNone:
        use.activations = in_flight * layer_bytes(spec, p.tp, tokens, true);
        break;
      case Recompute::kSelective:
        use.activations = in_flight * layer_bytes(spec, p.tp, tokens, false);
        break;
      case Recompute::kFull:
        use.activations += in_flight * kElementBytes * tokens * spec.hidden_dim;
        break;
    }
  }
  const bool has_logits = copy_of(job, vertex).head != Head::kScalar && place.pp + 1 == p.pp;
  if (has_logits && what.op != Op::kInferValue) {
    const auto [first, last] = vocabulary_rows(spec, p.tp, place.tp);
    use.logits = kElementBytes * std::min(kLogitRows, tokens) * (last - first) *
                 (is_training(what.op) ? 2 : 1);
  }
  return use;
}

void add_working(const Job& job, std::vector<RankMemory>* memory) {
  const auto working = [](const RankMemory& use) {
    return use.kv_cache + use.activations + use.logits;
  };
  for (std::size_t v = 0; v < job.graph.vertices.size(); ++v) {
    const VertexId vertex{static_cast<std::int32_t>(v)};
    const Block& block = block_of(job, vertex);
    std::map<std::pair<int, int>, RankMemory> known;  // by pp, tp
    for (const int rank : block.ranks) {
      const BlockPlace place = place_in_block(block, rank).value();
      auto [found, is_new] = known.try_emplace({place.pp, place.tp});
      if (is_new) {
        found->second = working_memory(job, vertex, place);
      }
      const RankMemory& need = found->second;
      RankMemory& use = (*memory)[static_cast<std::size_t>(rank)];
      if (working(need) > working(use)) {
        use.busiest = vertex;
        use.kv_cache = need.kv_cache;
        use.activations = need.activations;
        use.logits = need.logits;
      }
    }
  }
}

std::int64_t largest_need(const Job& job) {
  std::int64_t largest = 0;
  for (const RankMemory& memory : rank_memory(job)) {
    largest = std::max(largest, memory.total());
  }
  return largest;
}

/// The most micro-batches that a vertex's replica can be cut into.
std::int64_t most_micro_batches(const Job& job, VertexId vertex) {
  return micro_batch_sequences(job, vertex) * plan_of(job, vertex).micro_batches;
}

/// The smallest change that makes all ranks fit: more micro-batches of the busiest vertex, then
/// full recomputation, else what would divide the largest term.
std::string helpful_change(const Job& job, const RankMemory& worst, std::int64_t device_bytes) {
  const Vertex& vertex = job.graph.vertices[index(worst.busiest)];
  const auto plan_vertex = static_cast<std::size_t>(job.plan_vertex[index(worst.busiest)]);
  Job changed = job;
  std::int64_t& micro_batches = changed.plan.vertices[plan_vertex].micro_batches;
  const std::int64_t most = most_micro_batches(job, worst.busiest);
  while (vertex.op != Op::kGenerate && micro_batches < most) {
    micro_batches = std::min(most, 2 * micro_batches);
    if (largest_need(changed) <= device_bytes) {
      return fmt::format("micro_batches: {} of {} would make it fit", micro_batches, vertex.name);
    }
  }
  if (job.inputs.optimizer.recompute != Recompute::kFull) {
    changed = job;
    changed.inputs.optimizer.recompute = Recompute::kFull;
    if (largest_need(changed) <= device_bytes) {
      return "optimizer.recompute: full would make it fit";
    }
  }
  const std::int64_t resident = worst.weights + worst.sending + worst.gradients + worst.optimizer;
  if (worst.kv_cache > resident && worst.kv_cache > worst.activations) {
    return fmt::format("give {} more replicas (dp), tensor (tp) or pipeline (pp) parallelism",
                       vertex.name);
  }
  return "split the models of this rank over more devices (tp or pp), or place some of its "
         "vertices "
         "elsewhere";
}

}  // namespace

std::vector<RankMemory> rank_memory(const Job& job) {
  std::vector<RankMemory> memory(job.ranks.size());
  add_copies(job, &memory);
  add_messages(job, &memory);
  add_working(job, &memory);
  return memory;
}

std::string memory_text(const RankMemory& memory, const Graph& graph) {
  const std::string& busiest = graph.vertices[index(memory.busiest)].name;
  std::vector<std::pair<std::int64_t, std::string>> terms{
      {memory.weights, "weights"},
      {memory.sending, "weights being sent"},
      {memory.gradients, "gradients"},
      {memory.optimizer, "optimizer"},
      {memory.messages, "messages"},
      {memory.kv_cache, "KV cache of " + busiest},
      {memory.activations, "activations of " + busiest},
      {memory.logits, "logits of " + busiest}};
  std::stable_sort(
      terms.begin(), terms.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> texts;
  for (const auto& [bytes, name] : terms) {
    if (bytes > 0) {
      texts.push_back(fmt::format("{} {}", name, format_bytes(static_cast<double>(bytes))));
    }
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

void check_memory(const Job& job, std::int64_t device_bytes) {
  const std::vector<RankMemory> memory = rank_memory(job);
  const auto worst =
      std::max_element(memory.begin(), memory.end(), [](const RankMemory& a, const RankMemory& b) {
        return a.total() < b.total();
      });
  if (worst == memory.end() || worst->total() <= device_bytes) {
    return;
  }
  const auto rank = static_cast<std::size_t>(worst - memory.begin());
  throw Error(ErrorKind::kUsage,
              fmt::format("rank {} (node {}, device {}) needs {} but has {}: {}; {}",
                          rank,
                          job.ranks[rank].node,
                          job.ranks[rank].slot,
                          format_bytes(static_cast<double>(worst->total())),
                          format_bytes(static_cast<double>(device_bytes)),
                          memory_text(*worst, job.graph),
                          helpful_change(job, *worst, device_bytes)));
}

}  // namespace rpeg
