#include "cost/reshard.h"

#include <algorithm>
#include <array>

#include "cost/network.h"
#include "cost/shard.h"

namespace rpeg {
namespace {

double d(std::int64_t value) { return static_cast<double>(value); }

int stage_of(const Parallelism& p, int rank) { return rank / (p.dp * p.tp); }

/// Length of the intersection of [a0, a1) and [b0, b1).
double overlap(double a0, double a1, double b0, double b1) {
  return std::max(0.0, std::min(a1, b1) - std::max(a0, b0));
}

/// Up to two disjoint ranges of indices.
struct TwoRanges {
  std::array<Range, 2> ranges{};
  std::size_t count = 0;
  void add(Range range) { ranges[count++] = range; }
};

/// Length of the intersection, where an index of `a` is 1/a_parts long and one of `b` 1/b_parts.
double overlap(const TwoRanges& a, double a_parts, const TwoRanges& b, double b_parts) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.count; ++i) {
    for (std::size_t j = 0; j < b.count; ++j) {
      sum += overlap(a.ranges[i].first / a_parts,
                     (a.ranges[i].last + 1) / a_parts,
                     b.ranges[j].first / b_parts,
                     (b.ranges[j].last + 1) / b_parts);
    }
  }
  return sum;
}

/// The slices of matrices that the ranks of one stage hold between them.
TwoRanges slices_in_stage(const Ranks& ranks, int stage) {
  const int tp = ranks.parallelism.tp;
  const int stage_ranks = ranks.parallelism.dp * tp;
  const int first = std::max(ranks.first, stage * stage_ranks);
  const int last = std::min(ranks.first + ranks.count, (stage + 1) * stage_ranks) - 1;
  TwoRanges slices;
  if (last - first + 1 >= tp) {
    slices.add({0, tp - 1});
  } else if (first % tp <= last % tp) {
    slices.add({first % tp, last % tp});
  } else {
    slices.add({0, last % tp});
    slices.add({first % tp, tp - 1});
  }
  return slices;
}

/// KV heads of some slices; a head that several slices replicate counts once.
TwoRanges kv_heads(std::int64_t heads, const TwoRanges& slices, int tp) {
  TwoRanges held;
  for (std::size_t i = 0; i < slices.count; ++i) {
    const auto first = static_cast<int>(heads * slices.ranges[i].first / tp);
    const auto last = static_cast<int>((heads * (slices.ranges[i].last + 1) + tp - 1) / tp) - 1;
    if (i > 0 && first <= held.ranges[0].last) {
      held.ranges[0].last = std::max(held.ranges[0].last, last);
    } else {
      held.add({first, last});
    }
  }
  return held;
}

bool holds_table(const ModelSpec& model, Head head, const Parallelism& p, int stage) {
  const bool as_head = model.tied_embeddings && has_vocabulary(head);
  return stage == 0 || (as_head && stage == p.pp - 1);
}

/// What both hold of the layers and tables of two stages.
double common_of_stages(
    const ModelSpec& model, Head head, const Ranks& a, int stage_a, const Ranks& b, int stage_b) {
  const Parallelism& pa = a.parallelism;
  const Parallelism& pb = b.parallelism;
  const auto [first_a, last_a] = stage_layers(model.layers, pa.pp, stage_a);
  const auto [first_b, last_b] = stage_layers(model.layers, pb.pp, stage_b);
  const double layers = overlap(d(first_a), d(last_a), d(first_b), d(last_b));
  const bool table = holds_table(model, head, pa, stage_a) && holds_table(model, head, pb, stage_b);
  const bool end = stage_a == pa.pp - 1 && stage_b == pb.pp - 1;
  if (layers == 0.0 && !table && !end) return 0.0;

  const TwoRanges slices_a = slices_in_stage(a, stage_a);
  const TwoRanges slices_b = slices_in_stage(b, stage_b);
  const double share = overlap(slices_a, pa.tp, slices_b, pb.tp);
  const double kv = overlap(kv_heads(model.num_kv_heads, slices_a, pa.tp),
                            1.0,
                            kv_heads(model.num_kv_heads, slices_b, pb.tp),
                            1.0);
  const double hidden = d(model.hidden_dim);
  const double divided =
      2.0 * d(model.num_heads * model.head_dim) + (model.gated_ffn ? 3.0 : 2.0) * d(model.ffn_dim);
  const double table_elements = share * d(model.vocab_size) * hidden;
  double elements = layers * hidden * (share * divided + 2.0 * kv * d(model.head_dim) + 2.0);
  if (table) elements += table_elements;
  if (end) {
    elements += hidden;  // the final norm
    if (has_scalar(head)) elements += hidden;
    if (has_vocabulary(head) && !model.tied_embeddings) elements += table_elements;
  }
  return elements;
}

bool contains(const Range& outer, const Range& inner) {
  return outer.first <= inner.first && inner.last <= outer.last;
}

/// Walks over the nodes of the receiving block; neighbouring nodes, and racks, with the same
/// pattern are counted together, so that the work follows the number of stages, not of nodes.
class VolumeCounter {
 public:
  VolumeCounter(const ModelSpec& model, Head head, const VertexPlan& from, const VertexPlan& to)
      : model_(model), head_(head), from_(from), to_(to) {}

  TransferVolume count() {
    const Placement& block = to_.placement;
    for (int rack = block.racks.first; rack <= block.racks.last;) {
      const int racks = racks_alike(rack);
      for (int node = block.nodes.first; node <= block.nodes.last;) {
        const int nodes = nodes_alike(rack, node);
        add_node(rack, node, racks * nodes);
        node += nodes;
      }
      volume_.largest_rack =
          std::max(volume_.largest_rack,
                   missing(ranks_on(to_, rack, block.nodes),
                           held_on(rack, from_.placement.nodes, from_.placement.gpus)));
      rack += racks;
    }
    return volume_;
  }

 private:
  /// The ranks on all GPUs of some nodes of a rack, all inside the block.
  static Ranks ranks_on(const VertexPlan& plan, int rack, const Range& nodes) {
    const Placement& block = plan.placement;
    const int row =
        (rack - block.racks.first) * block.nodes.count() + nodes.first - block.nodes.first;
    const int width = block.gpus.count();
    return {plan.parallelism, row * width, nodes.count() * width};
  }

  /// The sender's ranks there; none when it has no GPU there.
  Ranks held_on(int rack, const Range& nodes, const Range& gpus) const {
    const Placement& block = from_.placement;
    const bool inside = contains(block.racks, {rack, rack}) && contains(block.nodes, nodes) &&
                        contains(block.gpus, gpus);
    if (!inside) return {from_.parallelism, 0, 0};
    Ranks ranks = ranks_on(from_, rack, nodes);
    if (gpus == block.gpus) return ranks;
    return {from_.parallelism, ranks.first + gpus.first - block.gpus.first, gpus.count()};
  }

  /// Distinct elements that some ranks need and none of those beside them holds.
  double missing(const Ranks& need, const Ranks& held) const {
    double elements = common_elements(model_, head_, need, need);
    if (held.count > 0) elements -= common_elements(model_, head_, held, need);
    return std::max(0.0, elements);
  }

  /// Units of `unit` ranks from this one on that lie wholly in the stage in which it begins; 0 if
  /// it does not, or if the slices of the next unit differ.
  static int units_in_stage(const VertexPlan& plan, int first_rank, int unit) {
    const int stage_ranks = plan.parallelism.dp * plan.parallelism.tp;
    if (unit % plan.parallelism.tp != 0) return 0;
    return (stage_ranks - first_rank % stage_ranks) / unit;
  }

  /// How many of the indices from `at` on have the same place relative to the sender: until the
  /// block ends, until the sender's begins, or as long as the sender's units are alike.
  template <typename F>
  static int alike(int at, const Range& block, const Range& source, F source_units) {
    int count = block.last - at + 1;
    if (at < source.first) count = std::min(count, source.first - at);
    if (contains(source, {at, at})) {
      count = std::min({count, source.last - at + 1, source_units()});
    }
    return count;
  }

  int racks_alike(int rack) const {
    const Ranks need = ranks_on(to_, rack, to_.placement.nodes);
    const int count = alike(rack, to_.placement.racks, from_.placement.racks, [&] {
      const Ranks held = ranks_on(from_, rack, from_.placement.nodes);
      return units_in_stage(from_, held.first, held.count);
    });
    return std::max(1, std::min(count, units_in_stage(to_, need.first, need.count)));
  }

  int nodes_alike(int rack, int node) const {
    const Ranks need = ranks_on(to_, rack, {node, node});
    int count = units_in_stage(to_, need.first, need.count);
    if (contains(from_.placement.racks, {rack, rack})) {
      count = std::min(count, alike(node, to_.placement.nodes, from_.placement.nodes, [&] {
                         const Ranks held = ranks_on(from_, rack, {node, node});
                         return units_in_stage(from_, held.first, held.count);
                       }));
    }
    return std::clamp(count, 1, to_.placement.nodes.last - node + 1);
  }

  /// Adds `alike` nodes like this one.
  void add_node(int rack, int node, int alike) {
    const Range& gpus = to_.placement.gpus;
    const Ranks need = ranks_on(to_, rack, {node, node});
    double sum = 0.0;
    for (int gpu = gpus.first; gpu <= gpus.last; ++gpu) {
      const double in = missing({to_.parallelism, need.first + gpu - gpus.first, 1},
                                held_on(rack, {node, node}, {gpu, gpu}));
      volume_.largest_gpu = std::max(volume_.largest_gpu, in);
      sum += in;
    }
    volume_.total += alike * sum;
    volume_.largest_node = std::max(
        volume_.largest_node, missing(need, held_on(rack, {node, node}, from_.placement.gpus)));
  }

  const ModelSpec& model_;
  Head head_;
  const VertexPlan& from_;
  const VertexPlan& to_;
  TransferVolume volume_;
};

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

double common_elements(const ModelSpec& model, Head head, const Ranks& a, const Ranks& b) {
  double elements = 0.0;
  for (int i = stage_of(a.parallelism, a.first);
       i <= stage_of(a.parallelism, a.first + a.count - 1);
       ++i) {
    for (int j = stage_of(b.parallelism, b.first);
         j <= stage_of(b.parallelism, b.first + b.count - 1);
         ++j) {
      elements += common_of_stages(model, head, a, i, b, j);
    }
  }
  return elements;
}

TransferVolume transfer_volume(const ModelSpec& model,
                               Head head,
                               const VertexPlan& from,
                               const VertexPlan& to) {
  return VolumeCounter(model, head, from, to).count();
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
  const Head head = head_of(consumer);
  const TransferVolume volume = transfer_volume(model, head, from, to);
  const double bytes = element_bytes(config.optimizer.dtype).weight;
  const Tier tier = holder_tier(from, to);
  const double gpu_bytes = volume.largest_gpu * bytes;
  const double beta = point_to_point_cost(profile, tier, gpu_bytes).beta_s_per_byte;
  // Without a rate of its own an uplink carries one rank's.
  const auto uplink = [beta](double bytes_per_s) {
    return bytes_per_s > 0.0 ? 1.0 / bytes_per_s : beta;
  };
  double bound_s = gpu_bytes * beta;
  if (tier != Tier::kNode) {
    const double node_beta = uplink(profile.node_bytes_per_s);
    const int source_nodes = from.placement.nodes.count() * from.placement.racks.count();
    const double model_elements = d(parameter_count(model, has_scalar(head)));
    const double egress = std::min(volume.total, model_elements) / source_nodes;
    bound_s =
        std::max({bound_s, volume.largest_node * bytes * node_beta, egress * bytes * node_beta});
  }
  if (tier == Tier::kCluster) {
    const double rack_beta = uplink(profile.rack_bytes_per_s);
    bound_s = std::max(bound_s, volume.largest_rack * bytes * rack_beta);
  }
  TimedTask task;
  task.bytes = volume.total * bytes;
  task.time.comm_s = (profile.reshard_fixed_s + bound_s / profile.reshard_eff) *
                     observed_factor(profile.observed, WorkClass::kTransfer, tier);
  task.time.total_s = task.time.comm_s;
  return task;
}

}  // namespace rpeg
