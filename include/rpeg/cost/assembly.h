#pragma once

/// From a plan to what the simulator needs, in fixed arrays: the one way on which both reports
/// (price_plan) and the search (which remembers the pieces) price plans.

#include <array>
#include <cstdint>
#include <vector>

#include "rpeg/cost/cost_model.h"

namespace rpeg {

inline constexpr std::size_t kMaxPlanVertices = 8;  ///< of an uncut graph
inline constexpr std::size_t kMaxPlanTasks = 64;    ///< stages, chunks and transfers of a plan
inline constexpr std::size_t kMaxAtoms = 255;       ///< sets of vertices

/// What follows from the structure of a plan alone. Tasks 0 … are the vertices of the cut graph.
struct PlanSkeleton {
  struct DataEdge {
    std::size_t task = 0;  ///< that receives
    std::size_t from = 0;  ///< plan vertices
    std::size_t to = 0;
    double bytes = 0.0;  ///< over all replicas of the receiver
  };
  struct WeightsEdge {
    std::size_t from_task = 0;
    std::size_t to_task = 0;
    std::size_t from = 0;  ///< plan vertices
    std::size_t to = 0;
    std::int64_t delta = 1;
  };
  Structure structure;
  Graph graph;  ///< uncut
  FusedGraph fused;
  std::vector<ResponsePart> parts;  ///< stage s handles parts[s − 1]
  ResponsePart whole;
  std::size_t generation = kMaxPlanVertices;  ///< plan vertex; kMaxPlanVertices: none
  std::array<std::int64_t, kMaxPlanVertices> staleness{};
  /// Plan vertices before this one that have the same weights if their layout is the same.
  std::array<std::uint32_t, kMaxPlanVertices> same_weights{};
  std::array<std::uint64_t, kMaxPlanVertices> tasks_of{};  ///< the tasks of a plan vertex
  std::vector<DataEdge> data;
  std::vector<WeightsEdge> weights;
  std::vector<TaskEdge> links;  ///< edges without weights, less those that others imply

  std::size_t task_count() const { return fused.base.size(); }
  const ResponsePart& part(std::size_t task) const {
    const auto stage = static_cast<std::size_t>(fused.graph.vertices[task].stage);
    return stage > 0 ? parts[stage - 1] : whole;
  }
};
PlanSkeleton build_skeleton(const Graph& graph,
                            const Structure& structure,
                            const WorkloadConfig& config);

/// Memory of a vertex alone, bytes of the fullest rank; working memory of the part of the responses
/// that needs most.
struct VertexMemory {
  double weights = 0.0;
  double optimizer = 0.0;
  double activations = 0.0;
  double logits = 0.0;
  double kv_slot = 0.0;  ///< of one sequence; generation only
  double working() const { return activations + logits; }
};
VertexMemory price_memory(const PlanSkeleton& skeleton,
                          std::size_t vertex,
                          const VertexPlan& plan,
                          const WorkloadConfig& config,
                          const HardwareProfile& profile);

/// Time and bytes of moving the consumer's weights while the wires are free.
struct Transfer {
  double comm_s = 0.0;
  double bytes = 0.0;
};
Transfer price_weights(const Vertex& consumer,
                       const VertexPlan& from,
                       const VertexPlan& to,
                       const WorkloadConfig& config,
                       const HardwareProfile& profile);

/// The blocks of a plan and the atoms into which they cut each other.
struct BlockAtoms {
  std::size_t blocks = 0;                                 ///< distinct ones
  std::array<std::uint8_t, kMaxPlanVertices> block_of{};  ///< per plan vertex
  std::array<std::uint8_t, kMaxPlanVertices> meets{};     ///< per block: blocks that share GPUs
  std::size_t count = 0;
  std::array<std::uint8_t, kMaxAtoms> users{};  ///< per atom: its blocks; ascending
  std::array<double, kMaxAtoms> gpus{};
  double active_gpus = 0.0;
};
void find_atoms(const Plan& plan, BlockAtoms* atoms);

/// A priced plan in fixed arrays.
struct Assembly {
  BlockAtoms atoms;
  std::array<const VertexMemory*, kMaxPlanVertices> memory{};
  std::array<std::uint8_t, kMaxPlanVertices> copy_of{};  ///< the vertex that holds the weights
  std::array<double, kMaxPlanVertices> copy_bytes{};     ///< of that copy, all versions
  std::array<double, kMaxPlanVertices> static_bytes{};   ///< per block
  std::array<double, kMaxPlanVertices> working_bytes{};  ///< per vertex, KV cache included
  std::array<double, kMaxAtoms> atom_bytes{};
  std::int64_t slots = 0;  ///< sequences in the KV cache of a generating replica
  double peak_bytes = 0.0;
  double overflow = 0.0;

  std::size_t tasks = 0;
  std::array<TaskTime, kMaxPlanTasks> time{};
  std::array<std::uint64_t, kMaxPlanTasks> conflicts{};  ///< tasks that share GPUs; not itself
  std::array<std::size_t, kMaxPlanTasks> transfer_of{};  ///< per task after the vertices: its edge
  std::array<double, kMaxPlanTasks> transfer_bytes{};
  std::array<TaskEdge, 4 * kMaxPlanTasks> edges{};
  std::size_t edge_count = 0;
};

/// Resident bytes, KV slots and overflow from the vertices' memory and the atoms.
void assemble_memory(const PlanSkeleton& skeleton,
                     const Plan& plan,
                     const WorkloadConfig& config,
                     const HardwareProfile& profile,
                     Assembly* out);
/// Adds the arrival of data to the times of the vertices' tasks.
void add_data_edges(const PlanSkeleton& skeleton,
                    const Plan& plan,
                    const HardwareProfile& profile,
                    Assembly* out);
/// Edges and conflicts of all tasks; `transfers` are those that `out->transfer_of` lists.
void connect_tasks(const PlanSkeleton& skeleton, Assembly* out);
/// Appends a transfer task for a weights edge.
void add_transfer(const PlanSkeleton& skeleton,
                  std::size_t weights_edge,
                  const Transfer& transfer,
                  double overlap_slowdown,
                  Assembly* out);

/// Same parallelism on the same GPUs: no weights need to move.
inline bool same_layout(const VertexPlan& a, const VertexPlan& b) {
  return a.parallelism == b.parallelism && a.placement == b.placement;
}

/// Prices a structurally valid plan. `pieces` prices, or remembers, what belongs to one vertex or
/// one transfer:
///   const VertexMemory& memory(skeleton, vertex, vertex_plan)   valid as long as `out` is used
///   const TaskTime& time(skeleton, task, vertex_plan, slots)
///   const Transfer& transfer(skeleton, weights edge, from, to)
template <typename Pieces>
void assemble_plan(const PlanSkeleton& skeleton,
                   const Plan& plan,
                   const WorkloadConfig& config,
                   const HardwareProfile& profile,
                   Pieces& pieces,
                   Assembly* out) {
  find_atoms(plan, &out->atoms);
  for (std::size_t v = 0; v < plan.vertices.size(); ++v) {
    out->memory[v] = &pieces.memory(skeleton, v, plan.vertices[v]);
  }
  assemble_memory(skeleton, plan, config, profile, out);
  out->tasks = skeleton.task_count();
  for (std::size_t task = 0; task < out->tasks; ++task) {
    const auto vertex = static_cast<std::size_t>(skeleton.fused.base[task]);
    const std::int64_t slots = vertex == skeleton.generation ? out->slots : 0;
    out->time[task] = pieces.time(skeleton, task, plan.vertices[vertex], slots);
  }
  add_data_edges(skeleton, plan, profile, out);
  for (std::size_t i = 0; i < skeleton.weights.size(); ++i) {
    const VertexPlan& from = plan.vertices[skeleton.weights[i].from];
    const VertexPlan& to = plan.vertices[skeleton.weights[i].to];
    if (same_layout(from, to)) continue;
    add_transfer(
        skeleton, i, pieces.transfer(skeleton, i, from, to), profile.overlap_slowdown, out);
  }
  connect_tasks(skeleton, out);
}

}  // namespace rpeg
