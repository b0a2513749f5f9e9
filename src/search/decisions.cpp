#include "search/decisions.h"

#include <fmt/format.h>

#include "rpeg/base/error.h"
#include "rpeg/graph/graph.h"
#include "rpeg/plan/plan_text.h"

namespace rpeg::search {
namespace {

/// The structures that differ from `own` in one decision of `other`.
std::vector<std::pair<std::string, Structure>> structure_swaps(const Structure& own,
                                                               const Structure& other,
                                                               const WorkloadConfig& config) {
  std::vector<std::pair<std::string, Structure>> swaps;
  if (own.ac_share != other.ac_share) {
    Structure changed = own;
    changed.ac_share = other.ac_share;
    changed.tau_critic = other.ac_share ? own.tau_actor : own.tau_critic;
    swaps.emplace_back(fmt::format("ac_share {} -> {}", own.ac_share, other.ac_share), changed);
  }
  if (own.tau_actor != other.tau_actor) {
    Structure changed = own;
    changed.tau_actor = other.tau_actor;
    if (own.ac_share) changed.tau_critic = other.tau_actor;  // one trunk, one staleness
    swaps.emplace_back(fmt::format("tau actor {} -> {}", own.tau_actor, other.tau_actor), changed);
  }
  if (!own.ac_share && !other.ac_share && own.tau_critic != other.tau_critic) {
    Structure changed = own;
    changed.tau_critic = other.tau_critic;
    swaps.emplace_back(fmt::format("tau critic {} -> {}", own.tau_critic, other.tau_critic),
                       changed);
  }
  if (own.cuts != other.cuts) {
    Structure changed = own;
    changed.cuts = other.cuts;
    swaps.emplace_back(
        fmt::format(
            "cuts {} -> {}", cuts_text(own, config.workload), cuts_text(other, config.workload)),
        changed);
  }
  return swaps;
}

Swap make_swap(std::string what, Plan plan, const WorkloadConfig& config) {
  const bool valid = is_valid(plan, config);
  return {std::move(what), std::move(plan), valid};
}

/// Block or split of one vertex, and its micro-batches.
void add_vertex_swaps(const std::string& name,
                      std::size_t at,
                      const Plan& plan,
                      const VertexPlan& other,
                      const WorkloadConfig& config,
                      std::vector<Swap>* swaps) {
  const VertexPlan& own = plan.vertices[at];
  Plan changed = plan;
  bool takes_micro_batches = false;
  if (own.placement != other.placement || own.parallelism != other.parallelism) {
    changed.vertices[at].placement = other.placement;
    changed.vertices[at].parallelism = other.parallelism;
    if (own.micro_batches != other.micro_batches && !is_valid(changed, config)) {
      changed.vertices[at].micro_batches = other.micro_batches;
      takes_micro_batches = true;
    }
    std::string what = own.placement == other.placement
                           ? fmt::format("{} split {} -> {}",
                                         name,
                                         split_text(own.parallelism),
                                         split_text(other.parallelism))
                           : fmt::format("{} block {} {} -> {} {}",
                                         name,
                                         placement_text(own.placement),
                                         split_text(own.parallelism),
                                         placement_text(other.placement),
                                         split_text(other.parallelism));
    if (takes_micro_batches) {
      what += fmt::format(", micro_batches {} -> {}", own.micro_batches, other.micro_batches);
    }
    swaps->push_back(make_swap(std::move(what), changed, config));
  }
  if (own.micro_batches != other.micro_batches && !takes_micro_batches) {
    changed = plan;
    changed.vertices[at].micro_batches = other.micro_batches;
    swaps->push_back(make_swap(
        fmt::format("{} micro_batches {} -> {}", name, own.micro_batches, other.micro_batches),
        std::move(changed),
        config));
  }
}

}  // namespace

std::vector<Swap> swap_decisions(const Plan& plan,
                                 const Plan& other,
                                 const WorkloadConfig& config) {
  std::vector<Swap> swaps;
  for (auto& [what, structure] : structure_swaps(plan.structure, other.structure, config)) {
    swaps.push_back(
        make_swap(std::move(what), with_structure(plan, structure, other, config), config));
  }
  const Graph own = build_graph(config.policy, plan.structure);
  const Graph others = build_graph(config.policy, other.structure);
  for (std::size_t v = 0; v < own.vertices.size(); ++v) {
    const std::string& name = own.vertices[v].name;
    const VertexId there = find_vertex(others, name);
    if (there == VertexId{-1}) continue;
    add_vertex_swaps(name, v, plan, other.vertices[index(there)], config, &swaps);
  }
  return swaps;
}

bool is_valid(const Plan& plan, const WorkloadConfig& config) {
  return find_violations(plan, build_graph(config.policy, plan.structure), config).empty();
}

Plan with_structure(const Plan& plan,
                    const Structure& structure,
                    const Plan& other,
                    const WorkloadConfig& config) {
  const Graph before = build_graph(config.policy, plan.structure);
  const Graph there = build_graph(config.policy, other.structure);
  Plan result{structure, {}};
  for (const Vertex& vertex : build_graph(config.policy, structure).vertices) {
    const VertexId own = find_vertex(before, vertex.name);
    const VertexId foreign = find_vertex(there, vertex.name);
    check(own != VertexId{-1} || foreign != VertexId{-1},
          "search: neither plan decides for " + vertex.name);
    result.vertices.push_back(own != VertexId{-1} ? plan.vertices[index(own)]
                                                  : other.vertices[index(foreign)]);
  }
  return result;
}

}  // namespace rpeg::search
