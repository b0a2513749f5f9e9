#pragma once

/// Module `plan`: who runs what, how it is split (this header), and plan.yaml (plan_file.h).

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rpeg/graph/graph.h"
#include "rpeg/spec/workload_config.h"

namespace rpeg {

/// dp · pp · tp GPUs. Rank order inside a block: tp fastest, then dp, pp slowest:
/// rank = (i_pp · dp + i_dp) · tp + i_tp.
struct Parallelism {
  int dp = 1;
  int pp = 1;
  int tp = 1;
  int gpus() const { return dp * pp * tp; }
  auto operator<=>(const Parallelism&) const = default;
};

/// An inclusive range of indices.
struct Range {
  int first = 0;
  int last = 0;
  int count() const { return last - first + 1; }
  auto operator<=>(const Range&) const = default;
};

/// A block of GPUs: each rack of `racks` contributes the same nodes, each node the same GPUs.
struct Placement {
  Range racks;
  Range nodes;
  Range gpus;
  int gpu_count() const { return racks.count() * nodes.count() * gpus.count(); }
  auto operator<=>(const Placement&) const = default;
};

/// The decisions for one vertex.
struct VertexPlan {
  Parallelism parallelism;
  std::int64_t micro_batches = 1;  ///< per mini-batch and data-parallel replica
  Placement placement;
  auto operator<=>(const VertexPlan&) const = default;
};

/// A complete plan: `vertices[i]` decides for `build_graph(policy, structure).vertices[i]`.
struct Plan {
  Structure structure;
  std::vector<VertexPlan> vertices;
  bool operator==(const Plan&) const = default;
};

/// "r0 n[0-3] g[0-3]" (racks as "r[0-1]" when several); n and g always as ranges.
std::string placement_text(const Placement& placement);
/// Parses `block = "r" R " n" R " g" R`, `R = int | "[" int "-" int "]"`; throws kUsage.
Placement parse_placement(const std::string& text);

/// Global GPU indices of a block in rank order: (rack · nodes_per_rack + node) · gpus_per_node +
/// gpu.
std::vector<int> placement_gpus(const Placement& placement, const ClusterSpec& cluster);

/// One broken rule of graph-and-plan: vertex, rule, numbers, in one sentence.
struct Violation {
  std::string vertex;
  std::string message;
};

/// Every violation of structural validity (the structure against what the inputs allow, block
/// inside the cluster, tp against heads, KV heads and FFN, pp against layers, dp and micro-batches
/// against sequences or the smallest chunk, max_tp, max_pp, …). Empty: valid. Memory is not looked
/// at here.
std::vector<Violation> find_violations(const Plan& plan,
                                       const Graph& graph,
                                       const WorkloadConfig& config);

/// Units that dp and micro_batches divide: sequences, or in DPO's i_ref and t_pi pairs.
std::int64_t batch_units(const Vertex& vertex, const WorkloadConfig& config);
/// Units of the smallest call: the whole batch, but of inference with cuts the smallest chunk, in
/// which ⌈F(s)·N⌉ − ⌈F(s − 1)·N⌉ of N sequences end; 0 when no sequence ends in one of the parts.
std::int64_t smallest_call_units(const Vertex& vertex,
                                 const Structure& structure,
                                 const WorkloadConfig& config);
/// Sequences in such a unit: 2 for a pair, else 1.
std::int64_t sequences_per_unit(const Vertex& vertex, const WorkloadConfig& config);

/// Sequences that one data-parallel replica handles: [first, last) of the vertex's sequences; the
/// first `sequences % dp` replicas get one more.
std::pair<std::int64_t, std::int64_t> replica_sequences(std::int64_t sequences,
                                                        int dp,
                                                        int replica);

/// Layers of a pipeline stage, as evenly as possible, the first stages get one more: [first, last).
std::pair<std::int64_t, std::int64_t> stage_layers(std::int64_t layers, int pp, int stage);

}  // namespace rpeg
