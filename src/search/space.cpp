#include "search/space.h"

#include <algorithm>

#include "rpeg/base/error.h"
#include "rpeg/graph/graph.h"

namespace rpeg::search {
namespace {

bool has_op(const std::vector<Vertex>& vertices, Op op) {
  return std::ranges::any_of(vertices, [op](const Vertex& vertex) { return vertex.op == op; });
}

std::vector<std::size_t> add_kinds(const std::vector<Vertex>& vertices, Space& space) {
  std::vector<std::size_t> kinds;
  for (const Vertex& vertex : vertices) {
    const auto found = std::ranges::find(space.kinds, vertex);
    kinds.push_back(static_cast<std::size_t>(found - space.kinds.begin()));
    if (found == space.kinds.end()) space.kinds.push_back(vertex);
  }
  return kinds;
}

bool has_name(const std::vector<Vertex>& vertices, const std::string& name) {
  return std::ranges::any_of(vertices, [&](const Vertex& vertex) { return vertex.name == name; });
}

std::string names(const std::vector<Vertex>& kinds) {
  std::string text;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const bool again = std::any_of(kinds.begin(),
                                   kinds.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const Vertex& v) { return v.name == kinds[i].name; });
    if (!again) text += (text.empty() ? "" : ", ") + kinds[i].name;
  }
  return text;
}

void check_block(const Pin& pin, const ClusterSpec& cluster) {
  if (!pin.placement) return;
  const Placement& block = *pin.placement;
  const bool inside = block.racks.last < cluster.racks &&
                      block.nodes.last < cluster.nodes_per_rack &&
                      block.gpus.last < cluster.gpus_per_node;
  if (!inside) {
    throw Error(ErrorKind::kUsage,
                "pin of " + pin.vertex + ": the block " + placement_text(block) +
                    " lies outside the cluster of " + std::to_string(cluster.racks) + " racks x " +
                    std::to_string(cluster.nodes_per_rack) + " nodes x " +
                    std::to_string(cluster.gpus_per_node) + " GPUs");
  }
  if (pin.parallelism && pin.parallelism->gpus() != block.gpu_count()) {
    throw Error(ErrorKind::kUsage,
                "pin of " + pin.vertex + ": dp * pp * tp = " +
                    std::to_string(pin.parallelism->gpus()) + ", but the block " +
                    placement_text(block) + " has " + std::to_string(block.gpu_count()) + " GPUs");
  }
}

/// Merges a pin into those of its vertex.
void add_pin(const Pin& pin, Space& space) {
  bool known = false;
  for (std::size_t k = 0; k < space.kinds.size(); ++k) {
    if (space.kinds[k].name != pin.vertex) continue;
    known = true;
    Pin& mine = space.pins[k];
    mine.vertex = pin.vertex;
    if (pin.parallelism) mine.parallelism = pin.parallelism;
    if (pin.micro_batches) mine.micro_batches = pin.micro_batches;
    if (pin.placement) mine.placement = pin.placement;
    check_block(mine, space.config->hardware);
  }
  if (!known) {
    throw Error(
        ErrorKind::kUsage,
        "pin of `" + pin.vertex + "`: the job has no such vertex; it has " + names(space.kinds));
  }
}

/// A structure without a pinned vertex is not in the space.
void keep_pinned_structures(const std::array<std::vector<Vertex>, 2>& vertices, Space& space) {
  bool may_part = true;
  for (const Pin& pin : space.pins) {
    if (pin.vertex.empty()) continue;
    if (space.may_share && !has_name(vertices[1], pin.vertex)) space.may_share = false;
    if (!has_name(vertices[0], pin.vertex)) may_part = false;
  }
  if (!may_part && !space.may_share) {
    throw Error(ErrorKind::kUsage,
                "the pins name t_piV and vertices of separate models: no structure has both");
  }
  space.must_share = !may_part;
  if (!space.may_share) space.kind_of[1].clear();
  if (space.must_share) space.kind_of[0].clear();
}

}  // namespace

Space build_space(const WorkloadConfig& config, const std::vector<Pin>& pins) {
  Space space;
  space.config = &config;
  space.may_share = config.policy.allow_ac_share && config.policy.algorithm == Algorithm::kPpo;
  space.cuts = possible_cuts(config);
  std::array<std::vector<Vertex>, 2> vertices;
  for (std::size_t share = 0; share < (space.may_share ? 2U : 1U); ++share) {
    Structure structure;
    structure.ac_share = share == 1;
    vertices[share] = build_graph(config.policy, structure).vertices;
    space.kind_of[share] = add_kinds(vertices[share], space);
  }
  space.pins.resize(space.kinds.size());
  // Without generation there is nothing that could lag behind.
  if (has_op(space.kinds, Op::kGenerate)) space.tau_actor = config.optimizer.staleness_actor;
  if (has_op(space.kinds, Op::kInferValue)) space.tau_critic = config.optimizer.staleness_critic;
  for (const Pin& pin : pins) add_pin(pin, space);
  keep_pinned_structures(vertices, space);
  return space;
}

Space plain_space(const WorkloadConfig& config) {
  Space space = build_space(config, {});
  space.tau_actor = {0};
  space.tau_critic = {0};
  space.may_share = false;
  space.cuts = 0;
  return space;
}

std::vector<Structure> all_structures(const Space& space) {
  std::vector<Structure> structures;
  const auto add_cuts = [&](Structure structure) {
    // All subsets of the set bits, the empty one first.
    std::uint32_t cuts = 0;
    do {
      structure.cuts = cuts;
      structures.push_back(structure);
      cuts = (cuts - space.cuts) & space.cuts;
    } while (cuts != 0);
  };
  for (const std::int64_t actor : space.tau_actor) {
    for (const std::int64_t critic : space.tau_critic) {
      if (!space.must_share) add_cuts({actor, critic, false, 0});
    }
    if (space.may_share) add_cuts({actor, actor, true, 0});
  }
  return structures;
}

bool has_structure(const Space& space, const Structure& structure) {
  const auto holds = [](const std::vector<std::int64_t>& candidates, std::int64_t tau) {
    return std::ranges::find(candidates, tau) != candidates.end();
  };
  if (!holds(space.tau_actor, structure.tau_actor)) return false;
  if ((structure.cuts & ~space.cuts) != 0) return false;
  if (structure.ac_share) return space.may_share && structure.tau_critic == structure.tau_actor;
  return !space.must_share && holds(space.tau_critic, structure.tau_critic);
}

void set_sharing(const Space& space, bool share, Plan& plan) {
  if (plan.structure.ac_share == share) return;
  plan.structure.ac_share = share;
  if (share) {
    // t_V and t_pi are the last two of the uncut graph.
    check(plan.vertices.size() >= 2, "search: nothing to share");
    plan.vertices[plan.vertices.size() - 2] = plan.vertices.back();
    plan.vertices.pop_back();
    plan.structure.tau_critic = plan.structure.tau_actor;
  } else {
    const VertexPlan joint = plan.vertices.back();
    plan.vertices.push_back(joint);
    const auto found = std::ranges::find(space.tau_critic, plan.structure.tau_actor);
    plan.structure.tau_critic = found != space.tau_critic.end() ? *found : space.tau_critic.front();
  }
}

void admit_structure(const Space& space, Plan& plan) {
  if (space.must_share || (plan.structure.ac_share && !space.may_share)) {
    set_sharing(space, space.must_share, plan);
  }
  Structure& structure = plan.structure;
  structure.cuts &= space.cuts;
  if (std::ranges::find(space.tau_actor, structure.tau_actor) == space.tau_actor.end()) {
    structure.tau_actor = space.tau_actor.front();
  }
  if (structure.ac_share) {
    structure.tau_critic = structure.tau_actor;
  } else if (std::ranges::find(space.tau_critic, structure.tau_critic) == space.tau_critic.end()) {
    structure.tau_critic = space.tau_critic.front();
  }
}

bool suits_chunks(const Space& space,
                  std::size_t kind,
                  const Structure& structure,
                  const Parallelism& split,
                  std::int64_t micro_batches) {
  if (structure.cuts == 0 || !is_inference(space.kinds[kind].op)) return true;
  const std::int64_t units = smallest_call_units(space.kinds[kind], structure, *space.config);
  return micro_batches <= units / split.dp;
}

bool suits_chunks(const Space& space, const Plan& plan) {
  if (plan.structure.cuts == 0) return true;
  const std::vector<std::size_t>& kinds = kinds_of(space, plan.structure);
  for (std::size_t v = 0; v < plan.vertices.size(); ++v) {
    const VertexPlan& vertex = plan.vertices[v];
    if (!suits_chunks(space, kinds[v], plan.structure, vertex.parallelism, vertex.micro_batches)) {
      return false;
    }
  }
  return true;
}

bool keeps_pin(const Pin& pin, const VertexPlan& plan) {
  return (!pin.parallelism || *pin.parallelism == plan.parallelism) &&
         (!pin.micro_batches || *pin.micro_batches == plan.micro_batches) &&
         (!pin.placement || *pin.placement == plan.placement);
}

bool keeps_pins(const Space& space, const Plan& plan) {
  const std::vector<std::size_t>& kinds = kinds_of(space, plan.structure);
  if (kinds.size() != plan.vertices.size()) return false;
  for (std::size_t v = 0; v < kinds.size(); ++v) {
    if (!keeps_pin(space.pins[kinds[v]], plan.vertices[v])) return false;
  }
  return true;
}

}  // namespace rpeg::search
