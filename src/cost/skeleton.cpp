#include "rpeg/base/error.h"
#include "rpeg/cost/assembly.h"

namespace rpeg {
namespace {

/// Bytes of a data edge per sequence: 4 a token id, log-probability or value.
double data_bytes_per_sequence(Op from, const WorkloadConfig& config) {
  constexpr double kElement = 4.0;
  const double response = expected_length(config.workload);
  switch (from) {
    case Op::kGenerate:  // ids of prompt and response, log-probabilities of the response
      return kElement * (static_cast<double>(config.workload.context_length) + 2.0 * response);
    case Op::kInferReward:
      return kElement;
    case Op::kInferValue:
    case Op::kInferReference:
    case Op::kInferActor:
      return kElement * response;
    case Op::kTrain:
    case Op::kTrainJoint:
      return 0.0;
  }
  throw Error(ErrorKind::kInternal, "cost: unknown op");
}

/// Share of the sequences whose responses end in a part.
double share_of(const ResponsePart& part, const WorkloadSpec& workload) {
  const auto ended = [&](std::int32_t boundary) {
    if (boundary == 0) return 0.0;
    if (workload.gen_quantiles.empty()) return 1.0;
    return workload.gen_quantiles[static_cast<std::size_t>(boundary) - 1].probability;
  };
  return ended(part.last) - ended(part.first);
}

/// Bit j of entry i: a path over edges of δ = 0 leads from task i to task j.
std::vector<std::uint64_t> reachable_tasks(const Graph& graph) {
  std::vector<std::uint64_t> reach(graph.vertices.size(), 0);
  for (std::size_t round = 0; round < graph.vertices.size(); ++round) {
    for (const Edge& edge : graph.edges) {
      if (edge.delta != 0) continue;
      reach[index(edge.from)] |= reach[index(edge.to)] | std::uint64_t{1} << index(edge.to);
    }
  }
  return reach;
}

/// An edge of δ = 0 is implied by a way round, an edge from a task to itself by its instances
/// running one after the other.
bool is_implied(const Edge& edge, const Graph& graph, const std::vector<std::uint64_t>& reach) {
  if (edge.from == edge.to) return edge.delta >= 1;
  if (edge.delta != 0) return false;
  for (const Edge& first : graph.edges) {
    if (first.from != edge.from || first.delta != 0 || first.to == edge.to) continue;
    if ((reach[index(first.to)] >> index(edge.to) & 1U) != 0) return true;
  }
  return false;
}

void add_fused_edges(const WorkloadConfig& config, PlanSkeleton* skeleton) {
  const Graph& fused = skeleton->fused.graph;
  const std::vector<std::uint64_t> reach = reachable_tasks(fused);
  for (const Edge& edge : fused.edges) {
    const std::size_t from = index(edge.from);
    const std::size_t to = index(edge.to);
    const auto base_from = static_cast<std::size_t>(skeleton->fused.base[from]);
    const auto base_to = static_cast<std::size_t>(skeleton->fused.base[to]);
    if (edge.kind == EdgeKind::kWeights) {
      skeleton->weights.push_back({from, to, base_from, base_to, edge.delta});
      continue;
    }
    if (edge.kind == EdgeKind::kData) {
      const Vertex& receiver = fused.vertices[to];
      const double sequences =
          static_cast<double>(batch_units(receiver, config) * sequences_per_unit(receiver, config));
      // What a stage or chunk sends belongs to the sequences of its part.
      const bool cut = fused.vertices[from].stage > 0;
      const double share = cut ? share_of(skeleton->part(from), config.workload) : 1.0;
      skeleton->data.push_back(
          {to,
           base_from,
           base_to,
           share * sequences * data_bytes_per_sequence(fused.vertices[from].op, config)});
    }
    if (is_implied(edge, fused, reach)) continue;
    skeleton->links.push_back(
        {static_cast<std::int32_t>(from), static_cast<std::int32_t>(to), edge.delta});
  }
}

}  // namespace

PlanSkeleton build_skeleton(const Graph& graph,
                            const Structure& structure,
                            const WorkloadConfig& config) {
  check(graph.vertices.size() <= kMaxPlanVertices, "cost: more than 8 vertices");
  PlanSkeleton skeleton;
  skeleton.structure = structure;
  skeleton.graph = graph;
  skeleton.parts = response_parts(structure.cuts, config.workload);
  skeleton.whole = whole_response(config.workload);
  skeleton.fused = fuse_graph(graph, static_cast<int>(skeleton.parts.size()));
  check(skeleton.task_count() + 3 <= kMaxPlanTasks, "cost: more than 64 tasks in an iteration");
  for (const Edge& edge : graph.edges) {
    if (edge.kind == EdgeKind::kWeights) skeleton.staleness[index(edge.to)] = edge.delta - 1;
  }
  for (std::size_t v = 0; v < graph.vertices.size(); ++v) {
    if (graph.vertices[v].op == Op::kGenerate) skeleton.generation = v;
    for (std::size_t j = 0; j < v; ++j) {
      const bool same = graph.vertices[j].model == graph.vertices[v].model &&
                        skeleton.staleness[j] == skeleton.staleness[v];
      if (same) skeleton.same_weights[v] |= 1U << j;
    }
  }
  for (std::size_t task = 0; task < skeleton.task_count(); ++task) {
    skeleton.tasks_of[static_cast<std::size_t>(skeleton.fused.base[task])] |= std::uint64_t{1}
                                                                              << task;
  }
  add_fused_edges(config, &skeleton);
  check(skeleton.links.size() + 4 * skeleton.weights.size() <= 4 * kMaxPlanTasks,
        "cost: more edges between tasks than expected");
  return skeleton;
}

}  // namespace rpeg
