#include "rpeg/cost/assembly.h"

#include <algorithm>
#include <bit>

#include "cost/network.h"
#include "cost/reshard.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

std::uint64_t bit(std::size_t task) { return std::uint64_t{1} << task; }
std::size_t lowest(std::uint64_t set) { return static_cast<std::size_t>(std::countr_zero(set)); }

}  // namespace

Transfer price_weights(const Vertex& consumer,
                       const VertexPlan& from,
                       const VertexPlan& to,
                       const WorkloadConfig& config,
                       const HardwareProfile& profile) {
  const TimedTask task = price_transfer(consumer, from, to, config, profile);
  return {task.time.comm_s, task.bytes};
}

/// Between different blocks data takes the time of a message: each replica of the receiver gets its
/// own sequences. It counts as the receiver's time, and with the receiver's observed factor.
void add_data_edges(const PlanSkeleton& skeleton,
                    const Plan& plan,
                    const HardwareProfile& profile,
                    Assembly* out) {
  for (const PlanSkeleton::DataEdge& edge : skeleton.data) {
    if (out->atoms.block_of[edge.from] == out->atoms.block_of[edge.to]) continue;
    const VertexPlan& to = plan.vertices[edge.to];
    const Tier tier = tier_between(plan.vertices[edge.from].placement, to.placement);
    const double arrival_s = seconds(profile.point_to_point[static_cast<std::size_t>(tier)],
                                     edge.bytes / to.parallelism.dp) *
                             vertex_factor(skeleton.graph.vertices[edge.to], to, profile);
    out->time[edge.task].comm_s += arrival_s;
    out->time[edge.task].total_s += arrival_s;
  }
}

/// At τ ≥ 1 a transfer runs beside compute, which stretches it.
void add_transfer(const PlanSkeleton& skeleton,
                  std::size_t weights_edge,
                  const Transfer& transfer,
                  double overlap_slowdown,
                  Assembly* out) {
  const std::size_t task = out->tasks++;
  check(task < kMaxPlanTasks, "cost: more than 64 tasks in an iteration");
  const bool overlaps = skeleton.weights[weights_edge].delta > 1;
  TaskTime& time = out->time[task];
  time = {};
  time.comm_s = overlaps ? transfer.comm_s * overlap_slowdown : transfer.comm_s;
  time.total_s = time.comm_s;
  out->transfer_of[task] = weights_edge;
  out->transfer_bytes[task] = transfer.bytes;
}

void connect_tasks(const PlanSkeleton& skeleton, Assembly* out) {
  std::array<std::uint64_t, kMaxPlanVertices> block_tasks{};
  const BlockAtoms& atoms = out->atoms;
  for (std::size_t v = 0; v < skeleton.graph.vertices.size(); ++v) {
    block_tasks[atoms.block_of[v]] |= skeleton.tasks_of[v];
  }
  std::size_t edges = 0;
  const auto connect = [&](std::size_t from, std::size_t to, std::int64_t delta) {
    out->edges[edges++] = {static_cast<std::int32_t>(from), static_cast<std::int32_t>(to), delta};
  };
  for (const TaskEdge& link : skeleton.links) out->edges[edges++] = link;
  std::size_t transfer = skeleton.task_count();
  for (std::size_t i = 0; i < skeleton.weights.size(); ++i) {
    const PlanSkeleton::WeightsEdge& edge = skeleton.weights[i];
    if (transfer == out->tasks || out->transfer_of[transfer] != i) {
      connect(edge.from_task, edge.to_task, edge.delta);
      continue;
    }
    connect(edge.from_task, transfer, 0);
    connect(transfer, edge.to_task, edge.delta);
    if (edge.delta == 1) {  // holds both blocks
      block_tasks[atoms.block_of[edge.from]] |= bit(transfer);
      block_tasks[atoms.block_of[edge.to]] |= bit(transfer);
    }
    ++transfer;
  }
  out->edge_count = edges;
  std::array<std::uint64_t, kMaxPlanVertices> meeting{};
  for (std::size_t b = 0; b < atoms.blocks; ++b) {
    for (std::uint64_t rest = atoms.meets[b]; rest != 0; rest &= rest - 1) {
      meeting[b] |= block_tasks[lowest(rest)];
    }
  }
  std::fill_n(out->conflicts.begin(), out->tasks, 0);
  for (std::size_t b = 0; b < atoms.blocks; ++b) {
    for (std::uint64_t rest = block_tasks[b]; rest != 0; rest &= rest - 1) {
      out->conflicts[lowest(rest)] |= meeting[b] & ~bit(lowest(rest));
    }
  }
}

}  // namespace rpeg
