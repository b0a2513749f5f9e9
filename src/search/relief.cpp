#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "rpeg/graph/graph.h"
#include "rpeg/plan/plan_text.h"
#include "rpeg/search/explain.h"
#include "search/decisions.h"

namespace rpeg {
namespace {

using search::is_valid;

/// Micro-batches that `vertex` may have with this dp: `own`, then doubled and doubled again.
std::vector<std::int64_t> micro_batch_choices(std::int64_t own, std::int64_t most) {
  std::vector<std::int64_t> choices;
  if (most < 1) return choices;
  for (std::int64_t m = std::min(own, most); m < most; m *= 2) choices.push_back(m);
  choices.push_back(most);
  return choices;
}

/// Finds single changes of a plan and keeps the best of each kind.
class ReliefSearch {
 public:
  ReliefSearch(const Plan& plan, const WorkloadConfig& config, const HardwareProfile& profile)
      : plan_(plan),
        config_(config),
        profile_(profile),
        graph_(build_graph(config.policy, plan.structure)) {
    const Evaluation now = evaluate_plan(plan, config, profile);
    least_ = {"", plan, now.priced.overflow, now.steady.period_s};
  }

  Relief find() {
    if (least_.overflow == 0.0) return least_;
    for (const auto kind : {&ReliefSearch::try_micro_batches,
                            &ReliefSearch::try_splits,
                            &ReliefSearch::try_structures,
                            &ReliefSearch::try_blocks}) {
      (this->*kind)();
      if (best_) return *best_;
    }
    return least_;
  }

 private:
  PricedPlan price(const Plan& plan) const {
    return price_plan(plan, build_graph(config_.policy, plan.structure), config_, profile_);
  }

  void consider(const std::string& what, const Plan& plan) {
    if (!is_valid(plan, config_)) return;
    const double overflow = price(plan).overflow;
    if (overflow >= least_.overflow && overflow > 0.0) return;
    const double period_s = evaluate_plan(plan, config_, profile_).steady.period_s;
    const Relief relief{what, plan, overflow, period_s};
    if (overflow > 0.0) {
      least_ = relief;
    } else if (!best_ || period_s < best_->period_s) {
      best_ = relief;
    }
  }

  std::int64_t most_micro_batches(std::size_t v, int dp) const {
    const Vertex& vertex = graph_.vertices[v];
    const std::int64_t units = smallest_call_units(vertex, plan_.structure, config_);
    return units / (is_training(vertex.op) ? config_.policy.minibatches : 1) / dp;
  }

  void try_micro_batches() {
    for (std::size_t v = 0; v < plan_.vertices.size(); ++v) {
      const VertexPlan& own = plan_.vertices[v];
      const std::int64_t most = most_micro_batches(v, own.parallelism.dp);
      for (const std::int64_t m : micro_batch_choices(own.micro_batches, most)) {
        if (m == own.micro_batches) continue;
        Plan changed = plan_;
        changed.vertices[v].micro_batches = m;
        consider(fmt::format(
                     "{}: micro_batches {} -> {}", graph_.vertices[v].name, own.micro_batches, m),
                 changed);
      }
    }
  }

  /// All splits of a block for vertex v, with a few choices of micro-batches each.
  void try_block(std::size_t v, const Placement& block, const std::string& prefix) {
    constexpr std::size_t kMostChoices = 4;
    const VertexPlan& own = plan_.vertices[v];
    const int gpus = block.gpu_count();
    for (int tp = 1; tp <= std::min(gpus, config_.hardware.gpus_per_node); ++tp) {
      if (gpus % tp != 0) continue;
      const auto layers = config_.model(graph_.vertices[v].model).layers;
      for (int pp = 1; pp <= gpus / tp && pp <= layers; ++pp) {
        if (gpus / tp % pp != 0) continue;
        const Parallelism split{gpus / tp / pp, pp, tp};
        auto choices = micro_batch_choices(own.micro_batches, most_micro_batches(v, split.dp));
        choices.resize(std::min(choices.size(), kMostChoices));
        for (const std::int64_t m : choices) {
          Plan changed = plan_;
          changed.vertices[v] = {split, m, block};
          std::string what = fmt::format("{}: {}", graph_.vertices[v].name, prefix);
          what +=
              block == own.placement
                  ? fmt::format("split {} -> {}", split_text(own.parallelism), split_text(split))
                  : split_text(split);
          if (m != own.micro_batches) {
            what += fmt::format(", micro_batches {} -> {}", own.micro_batches, m);
          }
          consider(what, changed);
        }
      }
    }
  }

  void try_splits() {
    for (std::size_t v = 0; v < plan_.vertices.size(); ++v) {
      try_block(v, plan_.vertices[v].placement, "");
    }
  }

  void try_structure(const std::string& what, const Structure& structure) {
    if (structure == plan_.structure) return;
    if (structure.ac_share == plan_.structure.ac_share) {
      consider(what, {structure, plan_.vertices});
      return;
    }
    // A shared trunk trains where the actor did.
    Plan joint{structure, {}};
    for (const Vertex& vertex : build_graph(config_.policy, structure).vertices) {
      const std::string from = vertex.op == Op::kTrainJoint ? "t_pi" : vertex.name;
      joint.vertices.push_back(plan_.vertices[index(find_vertex(graph_, from))]);
    }
    consider(what, joint);
  }

  void try_structures() {
    const Structure& own = plan_.structure;
    Structure changed = own;
    changed.tau_actor = 0;
    if (own.ac_share) changed.tau_critic = 0;
    try_structure(fmt::format("tau actor {} -> 0", own.tau_actor), changed);
    changed = own;
    if (!own.ac_share) changed.tau_critic = 0;
    try_structure(fmt::format("tau critic {} -> 0", own.tau_critic), changed);
    changed = own;
    changed.cuts = 0;
    try_structure(fmt::format("cuts {} -> []", cuts_text(own, config_.workload)), changed);
    if (!config_.policy.allow_ac_share || own.ac_share) return;
    changed = own;
    changed.ac_share = true;
    changed.tau_critic = own.tau_actor;
    try_structure("ac_share false -> true", changed);
  }

  /// Blocks that vertex v might take: of other vertices, all GPUs, doubled or halved along an axis,
  /// and its neighbours of equal size.
  std::vector<Placement> blocks_for(std::size_t v) const {
    std::vector<Placement> blocks;
    const ClusterSpec& cluster = config_.hardware;
    const Placement& own = plan_.vertices[v].placement;
    for (const VertexPlan& other : plan_.vertices) blocks.push_back(other.placement);
    blocks.push_back(
        {{0, cluster.racks - 1}, {0, cluster.nodes_per_rack - 1}, {0, cluster.gpus_per_node - 1}});
    for (const auto axis : {&Placement::racks, &Placement::nodes, &Placement::gpus}) {
      const Range range = own.*axis;
      const int size = range.count();
      for (const Range& changed : std::array<Range, 5>{{{range.first, range.last + size},
                                                        {range.first - size, range.last},
                                                        {range.first, range.first + size / 2 - 1},
                                                        {range.first + size, range.last + size},
                                                        {range.first - size, range.last - size}}}) {
        Placement block = own;
        block.*axis = changed;
        blocks.push_back(block);  // what lies outside the cluster breaks a rule
      }
    }
    std::ranges::sort(blocks);
    const auto repeated = std::ranges::unique(blocks);
    blocks.erase(repeated.begin(), repeated.end());
    std::erase_if(blocks, [&](const Placement& block) {
      return block == own || block.gpu_count() < 1 || block.racks.first < 0 ||
             block.nodes.first < 0 || block.gpus.first < 0 || block.racks.last >= cluster.racks ||
             block.nodes.last >= cluster.nodes_per_rack || block.gpus.last >= cluster.gpus_per_node;
    });
    return blocks;
  }

  void try_blocks() {
    for (std::size_t v = 0; v < plan_.vertices.size(); ++v) {
      const VertexPlan& own = plan_.vertices[v];
      for (const Placement& block : blocks_for(v)) {
        try_block(v,
                  block,
                  fmt::format("block {} {} -> {} ",
                              placement_text(own.placement),
                              split_text(own.parallelism),
                              placement_text(block)));
      }
    }
  }

  const Plan& plan_;
  const WorkloadConfig& config_;
  const HardwareProfile& profile_;
  Graph graph_;
  std::optional<Relief> best_;
  Relief least_;
};

}  // namespace

Relief smallest_relief(const Plan& plan,
                       const WorkloadConfig& config,
                       const HardwareProfile& profile) {
  return ReliefSearch(plan, config, profile).find();
}

}  // namespace rpeg
