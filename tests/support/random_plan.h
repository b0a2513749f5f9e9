#pragma once

#include <algorithm>
#include <vector>

#include "rpeg/base/rng.h"
#include "rpeg/plan/plan.h"

namespace rpeg::test {

inline int random_int(int first, int last, Rng& rng) {
  return first + static_cast<int>(rng.below(last - first + 1));
}

inline Range random_range(int size, Rng& rng) {
  const int a = random_int(0, size - 1, rng);
  const int b = random_int(0, size - 1, rng);
  return {std::min(a, b), std::max(a, b)};
}

/// Any valid plan of a vertex: a random block, split and number of micro-batches.
inline VertexPlan random_vertex_plan(const Vertex& vertex, const WorkloadConfig& config, Rng& rng) {
  const ClusterSpec& cluster = config.hardware;
  const Graph alone{{vertex}, {}};
  while (true) {
    VertexPlan plan;
    plan.placement = {random_range(cluster.racks, rng),
                      random_range(cluster.nodes_per_rack, rng),
                      random_range(cluster.gpus_per_node, rng)};
    const int gpus = plan.placement.gpu_count();
    const auto divisor = [&](int number) {
      int result = random_int(1, number, rng);
      while (number % result != 0) result = random_int(1, number, rng);
      return result;
    };
    plan.parallelism.tp = divisor(gpus);
    plan.parallelism.pp = divisor(gpus / plan.parallelism.tp);
    plan.parallelism.dp = gpus / plan.parallelism.tp / plan.parallelism.pp;
    plan.micro_batches = std::int64_t{1} << rng.below(4);
    if (find_violations(Plan{{}, {plan}}, alone, config).empty()) return plan;
  }
}

/// Any structure that the configuration's algorithm has, whatever its search may take.
inline Structure random_structure(const WorkloadConfig& config, Rng& rng) {
  Structure structure;
  const bool ppo = config.policy.algorithm == Algorithm::kPpo;
  structure.tau_actor = rng.below(3);
  structure.ac_share = ppo && rng.below(3) == 0;
  if (ppo) structure.tau_critic = structure.ac_share ? structure.tau_actor : rng.below(3);
  structure.cuts = possible_cuts(config) & static_cast<std::uint32_t>(rng.below(1 << 20));
  return structure;
}

/// A valid plan of any structure; every other vertex runs where and as an earlier one does, if it
/// may. Whether the trunk may be shared is set in `config`.
inline Plan random_plan(WorkloadConfig* config, Rng& rng) {
  Plan plan;
  plan.structure = random_structure(*config, rng);
  config->policy.allow_ac_share = plan.structure.ac_share;
  while (true) {
    const Graph graph = build_graph(config->policy, plan.structure);
    plan.vertices.clear();
    for (const Vertex& vertex : graph.vertices) {
      plan.vertices.push_back(random_vertex_plan(vertex, *config, rng));
      if (rng.below(2) == 0) {
        const VertexPlan own = plan.vertices.back();
        plan.vertices.back() = plan.vertices[static_cast<std::size_t>(
            rng.below(static_cast<std::int64_t>(plan.vertices.size())))];
        const Graph alone{{vertex}, {}};
        if (!find_violations(Plan{{}, {plan.vertices.back()}}, alone, *config).empty()) {
          plan.vertices.back() = own;
        }
      }
    }
    if (find_violations(plan, graph, *config).empty()) return plan;
    plan.structure.cuts = 0;  // chunks too small for a split
  }
}

/// One change of a plan: another plan for a vertex, the plan of another vertex, or another
/// structure.
inline void change_plan(Plan* plan, const WorkloadConfig& config, Rng& rng) {
  const auto draw = rng.below(8);
  if (plan->vertices.empty() || draw == 0) {
    plan->structure = random_structure(config, rng);
    const Graph graph = build_graph(config.policy, plan->structure);
    while (plan->vertices.size() > graph.vertices.size()) plan->vertices.pop_back();
    while (plan->vertices.size() < graph.vertices.size()) {
      plan->vertices.push_back(
          random_vertex_plan(graph.vertices[plan->vertices.size()], config, rng));
    }
  }
  const Graph graph = build_graph(config.policy, plan->structure);
  const auto count = static_cast<std::int64_t>(plan->vertices.size());
  const auto at = static_cast<std::size_t>(rng.below(count));
  if (draw >= 5) {
    const VertexPlan other = plan->vertices[static_cast<std::size_t>(rng.below(count))];
    const Graph alone{{graph.vertices[at]}, {}};
    if (find_violations(Plan{{}, {other}}, alone, config).empty()) plan->vertices[at] = other;
  } else {
    plan->vertices[at] = random_vertex_plan(graph.vertices[at], config, rng);
  }
  // Sharing changes which vertex stands where.
  for (std::size_t v = 0; v < plan->vertices.size(); ++v) {
    const Graph alone{{graph.vertices[v]}, {}};
    if (!find_violations(Plan{{}, {plan->vertices[v]}}, alone, config).empty()) {
      plan->vertices[v] = random_vertex_plan(graph.vertices[v], config, rng);
    }
  }
}

}  // namespace rpeg::test
