#include <array>

#include "cost/plan_memory.h"
#include "rpeg/base/error.h"
#include "rpeg/cost/assembly.h"

namespace rpeg {
namespace {

/// Prices every piece when it is asked for.
class FreshPieces {
 public:
  FreshPieces(const WorkloadConfig& config, const HardwareProfile& profile)
      : config_(config), profile_(profile) {}

  const VertexMemory& memory(const PlanSkeleton& skeleton,
                             std::size_t vertex,
                             const VertexPlan& plan) {
    memory_[vertex] = price_memory(skeleton, vertex, plan, config_, profile_);
    return memory_[vertex];
  }
  TaskTime time(const PlanSkeleton& skeleton,
                std::size_t task,
                const VertexPlan& plan,
                std::int64_t slots) const {
    return price_part(
        skeleton.fused.graph.vertices[task], plan, skeleton.part(task), slots, config_, profile_);
  }
  Transfer transfer(const PlanSkeleton& skeleton,
                    std::size_t consumer,
                    const VertexPlan& from,
                    const VertexPlan& to) const {
    return price_weights(skeleton.graph.vertices[consumer], from, to, config_, profile_);
  }

 private:
  const WorkloadConfig& config_;
  const HardwareProfile& profile_;
  std::array<VertexMemory, kMaxPlanVertices> memory_;
};

/// Makes `task` hold the atoms that one of the blocks uses.
void hold(TimedTask* task, const BlockAtoms& atoms, std::uint32_t blocks) {
  for (std::size_t a = 0; a < atoms.count; ++a) {
    if ((atoms.users[a] & blocks) == 0) continue;
    task->atoms.push_back(static_cast<std::int32_t>(a));
    task->gpus += atoms.gpus[a];
  }
}

void connect(TaskGraph* graph, std::size_t from, std::size_t to, std::int64_t delta) {
  graph->edges.push_back({static_cast<std::int32_t>(from), static_cast<std::int32_t>(to), delta});
}

/// All tasks and edges, those that others imply included.
TaskGraph build_tasks(const PlanSkeleton& skeleton, const Assembly& assembly) {
  const FusedGraph& fused = skeleton.fused;
  const BlockAtoms& atoms = assembly.atoms;
  TaskGraph graph;
  graph.atom_count = static_cast<std::int32_t>(atoms.count);
  graph.atom_gpus.assign(atoms.gpus.begin(),
                         atoms.gpus.begin() + static_cast<std::ptrdiff_t>(atoms.count));
  for (std::size_t id = 0; id < assembly.tasks; ++id) {
    TimedTask task;
    task.time = assembly.time[id];
    if (id < fused.base.size()) {
      task.vertex = fused.base[id];
      task.name = fused.graph.vertices[id].name;
      hold(&task, atoms, 1U << atoms.block_of[static_cast<std::size_t>(task.vertex)]);
    } else {
      const auto& edge = skeleton.weights[assembly.transfer_of[id]];
      task.name =
          skeleton.graph.vertices[edge.from].name + "->" + skeleton.graph.vertices[edge.to].name;
      task.bytes = assembly.transfer_bytes[id];
      if (edge.delta == 1) {
        hold(&task, atoms, 1U << atoms.block_of[edge.from] | 1U << atoms.block_of[edge.to]);
      }
    }
    graph.tasks.push_back(std::move(task));
  }
  std::size_t weights_edge = 0;
  std::size_t transfer = fused.base.size();
  for (const Edge& edge : fused.graph.edges) {
    const bool moves = edge.kind == EdgeKind::kWeights && transfer < assembly.tasks &&
                       assembly.transfer_of[transfer] == weights_edge;
    if (edge.kind == EdgeKind::kWeights) ++weights_edge;
    if (!moves) {
      connect(&graph, index(edge.from), index(edge.to), edge.delta);
      continue;
    }
    connect(&graph, index(edge.from), transfer, 0);
    connect(&graph, transfer, index(edge.to), edge.delta);
    if (edge.delta > 1) connect(&graph, transfer, transfer, 1);
    ++transfer;
  }
  return graph;
}

}  // namespace

PricedPlan price_plan(const Plan& plan,
                      const Graph& graph,
                      const WorkloadConfig& config,
                      const HardwareProfile& profile) {
  check(plan.vertices.size() == graph.vertices.size(), "cost: plan and graph differ in vertices");
  const PlanSkeleton skeleton = build_skeleton(graph, plan.structure, config);
  FreshPieces pieces(config, profile);
  Assembly assembly;
  assemble_plan(skeleton, plan, config, profile, pieces, &assembly);
  PricedPlan priced;
  priced.tasks = build_tasks(skeleton, assembly);
  priced.peak_bytes = assembly.peak_bytes;
  priced.limit_bytes = profile.memory_per_gpu;
  priced.overflow = assembly.overflow;
  priced.generation_slots = assembly.slots;
  describe_memory(skeleton, plan, assembly, profile, &priced);
  return priced;
}

}  // namespace rpeg
