#include "cost/reshard.h"

#include <algorithm>
#include <cmath>

#include "cost/network.h"
#include "cost/shard.h"

namespace rpeg {
namespace {

double d(std::int64_t value) { return static_cast<double>(value); }

int stage_of(const Parallelism& p, int rank) { return rank / (p.dp * p.tp); }
int slice_of(const Parallelism& p, int rank) { return rank % p.tp; }

/// Length of the intersection of [a0, a1) and [b0, b1).
double overlap(double a0, double a1, double b0, double b1) {
  return std::max(0.0, std::min(a1, b1) - std::max(a0, b0));
}

/// Share of a matrix that slice i of n and slice j of m have in common.
double slice_overlap(int i, int n, int j, int m) {
  return overlap(i / static_cast<double>(n),
                 (i + 1) / static_cast<double>(n),
                 j / static_cast<double>(m),
                 (j + 1) / static_cast<double>(m));
}

/// KV heads [first, last) of a slice; replicated when there are more slices than heads.
Range kv_heads(std::int64_t heads, int slice, int tp) {
  const auto first = static_cast<int>(heads * slice / tp);
  const auto last = static_cast<int>((heads * (slice + 1) + tp - 1) / tp) - 1;
  return {first, last};
}

bool holds_table(const ModelSpec& model, ModelRole role, const Parallelism& p, int stage) {
  const bool as_head = model.tied_embeddings && !has_scalar_head(role);
  return stage == 0 || (as_head && stage == p.pp - 1);
}

/// What the receivers of one transfer get, in elements of the model.
struct Volume {
  double largest_gpu = 0.0;
  double largest_node = 0.0;  ///< each element once per node
  double largest_rack = 0.0;
  double total = 0.0;
};

/// Walks over the nodes ("rows") of the receiving block; neighbours with the same pattern are
/// counted together, so that the work follows the number of stages, not of nodes.
class VolumeCounter {
 public:
  VolumeCounter(const ModelSpec& model,
                ModelRole role,
                const VertexPlan& from,
                const VertexPlan& to)
      : model_(model), role_(role), from_(from), to_(to) {}

  Volume count() {
    const Placement& block = to_.placement;
    for (int rack = block.racks.first; rack <= block.racks.last; ++rack) {
      double in_rack = 0.0;
      for (int node = block.nodes.first; node <= block.nodes.last;) {
        const int alike = rows_alike(rack, node);
        in_rack += alike * add_row(rack, node, alike);
        node += alike;
      }
      const double distinct = elements_of_rows(rack, block.nodes);
      volume_.largest_rack = std::max(volume_.largest_rack, std::min(in_rack, distinct));
    }
    return volume_;
  }

 private:
  static int row_of(const Placement& block, int rack, int node) {
    return (rack - block.racks.first) * block.nodes.count() + node - block.nodes.first;
  }

  bool in_source(int rack, int node) const {
    const Placement& block = from_.placement;
    return block.racks.first <= rack && rack <= block.racks.last && block.nodes.first <= node &&
           node <= block.nodes.last;
  }

  /// Rows from this one on that lie wholly in the stage in which it begins; 0 if it does not.
  static int rows_in_stage(const VertexPlan& plan, int rack, int node) {
    const int width = plan.placement.gpus.count();
    const int stage_ranks = plan.parallelism.dp * plan.parallelism.tp;
    const int rank = row_of(plan.placement, rack, node) * width;
    return (stage_ranks - rank % stage_ranks) / width;
  }

  /// How many rows from (rack, node) on have the pattern of this one; at least 1.
  int rows_alike(int rack, int node) const {
    const auto repeats = [](const VertexPlan& plan) {
      return plan.placement.gpus.count() % plan.parallelism.tp == 0;
    };
    if (!repeats(to_) || !repeats(from_)) return 1;
    int rows = std::min(to_.placement.nodes.last - node + 1, rows_in_stage(to_, rack, node));
    const Range& source = from_.placement.nodes;
    if (in_source(rack, node)) {
      rows = std::min({rows, source.last - node + 1, rows_in_stage(from_, rack, node)});
    } else if (node < source.first) {
      rows = std::min(rows, source.first - node);
    }
    return std::max(1, rows);
  }

  /// Adds `alike` rows like this one; returns the distinct elements that one of them receives.
  double add_row(int rack, int node, int alike) {
    const Placement& block = to_.placement;
    const Range& source = from_.placement.gpus;
    const bool shared = in_source(rack, node);
    double sum = 0.0;
    for (int gpu = block.gpus.first; gpu <= block.gpus.last; ++gpu) {
      const int rank = row_of(block, rack, node) * block.gpus.count() + gpu - block.gpus.first;
      double missing = common_elements(model_, role_, to_.parallelism, rank, to_.parallelism, rank);
      if (shared && source.first <= gpu && gpu <= source.last) {
        const int held = row_of(from_.placement, rack, node) * source.count() + gpu - source.first;
        missing -= common_elements(model_, role_, from_.parallelism, held, to_.parallelism, rank);
      }
      missing = std::max(0.0, missing);
      volume_.largest_gpu = std::max(volume_.largest_gpu, missing);
      sum += missing;
    }
    volume_.total += alike * sum;
    const double distinct = std::min(sum, elements_of_rows(rack, {node, node}));
    volume_.largest_node = std::max(volume_.largest_node, distinct);
    return distinct;
  }

  /// Distinct elements of the stages that the GPUs of some rows of a rack belong to.
  double elements_of_rows(int rack, const Range& nodes) const {
    const int width = to_.placement.gpus.count();
    const int first = row_of(to_.placement, rack, nodes.first) * width;
    const int last = first + nodes.count() * width - 1;
    const Parallelism whole{1, to_.parallelism.pp, 1};
    double elements = 0.0;
    for (int stage = stage_of(to_.parallelism, first); stage <= stage_of(to_.parallelism, last);
         ++stage) {
      elements += stage_elements(model_, role_, whole, stage);
    }
    return elements;
  }

  const ModelSpec& model_;
  ModelRole role_;
  const VertexPlan& from_;
  const VertexPlan& to_;
  Volume volume_;
};

bool contains(const Range& outer, const Range& inner) {
  return outer.first <= inner.first && inner.last <= outer.last;
}

/// The tier over which every receiver reaches the nearest holder of all it needs.
Tier holder_tier(const VertexPlan& from, const VertexPlan& to) {
  // Without pipeline stages each node (tp inside it) or each rack of the source holds the model.
  const bool whole = from.parallelism.pp == 1;
  const bool same_racks = contains(from.placement.racks, to.placement.racks);
  const bool whole_nodes = from.placement.gpus.count() % from.parallelism.tp == 0;
  if (whole && whole_nodes && same_racks && contains(from.placement.nodes, to.placement.nodes)) {
    return Tier::kNode;
  }
  const Tier slowest = tier_between(from.placement, to.placement);
  if (whole && whole_nodes && same_racks) return std::min(slowest, Tier::kRack);
  return slowest;
}

}  // namespace

double common_elements(const ModelSpec& model,
                       ModelRole role,
                       const Parallelism& from,
                       int rank_from,
                       const Parallelism& to,
                       int rank_to) {
  const int stage_a = stage_of(from, rank_from);
  const int stage_b = stage_of(to, rank_to);
  const int slice_a = slice_of(from, rank_from);
  const int slice_b = slice_of(to, rank_to);
  const double share = slice_overlap(slice_a, from.tp, slice_b, to.tp);
  const double hidden = d(model.hidden_dim);
  const auto [first_a, last_a] = stage_layers(model.layers, from.pp, stage_a);
  const auto [first_b, last_b] = stage_layers(model.layers, to.pp, stage_b);
  const double layers = overlap(d(first_a), d(last_a), d(first_b), d(last_b));
  const Range kv_a = kv_heads(model.num_kv_heads, slice_a, from.tp);
  const Range kv_b = kv_heads(model.num_kv_heads, slice_b, to.tp);
  const double kv = overlap(kv_a.first, kv_a.last + 1, kv_b.first, kv_b.last + 1);
  const double divided =
      2.0 * d(model.num_heads * model.head_dim) + (model.gated_ffn ? 3.0 : 2.0) * d(model.ffn_dim);
  double elements = layers * hidden * (share * divided + 2.0 * kv * d(model.head_dim) + 2.0);
  const double table = share * d(model.vocab_size) * hidden;
  if (holds_table(model, role, from, stage_a) && holds_table(model, role, to, stage_b)) {
    elements += table;
  }
  if (stage_a == from.pp - 1 && stage_b == to.pp - 1) {
    elements += hidden;  // the final norm
    if (has_scalar_head(role)) {
      elements += hidden;
    } else if (!model.tied_embeddings) {
      elements += table;
    }
  }
  return elements;
}

Tier tier_between(const Placement& a, const Placement& b) {
  const auto spans = [](const Range& x, const Range& y) {
    return std::min(x.first, y.first) != std::max(x.last, y.last);
  };
  if (spans(a.racks, b.racks)) return Tier::kCluster;
  return spans(a.nodes, b.nodes) ? Tier::kRack : Tier::kNode;
}

TimedTask price_transfer(const Vertex& consumer,
                         const VertexPlan& from,
                         const VertexPlan& to,
                         const WorkloadConfig& config,
                         const HardwareProfile& profile) {
  const ModelSpec& model = config.model(consumer.model);
  const Volume volume = VolumeCounter(model, consumer.model, from, to).count();
  const double bytes = element_bytes(config.optimizer.dtype).weight;
  const Tier tier = holder_tier(from, to);
  const auto beta = [&profile](Tier t) {
    return profile.point_to_point[static_cast<std::size_t>(t)].beta_s_per_byte;
  };
  double bound_s = volume.largest_gpu * bytes * beta(tier);
  if (tier != Tier::kNode) {
    // The uplink of a node carries one rank's rate.
    const int source_nodes = from.placement.nodes.count() * from.placement.racks.count();
    const double egress_s =
        std::min(volume.total, d(parameter_count(model, has_scalar_head(consumer.model)))) * bytes *
        beta(tier) / source_nodes;
    bound_s = std::max({bound_s, volume.largest_node * bytes * beta(tier), egress_s});
  }
  if (tier == Tier::kCluster) {
    bound_s = std::max(bound_s, volume.largest_rack * bytes * beta(tier));
  }
  TimedTask task;
  task.bytes = volume.total * bytes;
  task.time.comm_s = profile.reshard_fixed_s + bound_s / profile.reshard_eff;
  task.time.total_s = task.time.comm_s;
  return task;
}

}  // namespace rpeg
