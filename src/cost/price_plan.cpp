#include <algorithm>

#include "cost/memory.h"
#include "cost/network.h"
#include "cost/reshard.h"
#include "cost/vertex_rates.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// The sets of GPUs that exactly the same vertices use.
struct Atoms {
  std::vector<std::uint32_t> users;  ///< ascending and distinct
  std::vector<double> gpus;
};

Atoms merge_cells(const std::vector<PlacementCell>& cells) {
  Atoms atoms;
  for (const PlacementCell& cell : cells) atoms.users.push_back(cell.users);
  std::sort(atoms.users.begin(), atoms.users.end());
  atoms.users.erase(std::unique(atoms.users.begin(), atoms.users.end()), atoms.users.end());
  atoms.gpus.resize(atoms.users.size(), 0.0);
  for (const PlacementCell& cell : cells) {
    const auto at = std::lower_bound(atoms.users.begin(), atoms.users.end(), cell.users);
    atoms.gpus[static_cast<std::size_t>(at - atoms.users.begin())] += cell.box.gpu_count();
  }
  return atoms;
}

/// Makes `task` hold every atom that one of `users` uses.
void hold(TimedTask* task, const Atoms& atoms, std::uint32_t users) {
  for (std::size_t a = 0; a < atoms.users.size(); ++a) {
    if ((atoms.users[a] & users) == 0) continue;
    task->atoms.push_back(static_cast<std::int32_t>(a));
    task->gpus += atoms.gpus[a];
  }
}

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

/// Time until the data of an edge between different blocks has arrived: each replica of the
/// receiver gets its own sequences.
double data_edge_s(const Edge& edge,
                   const Plan& plan,
                   const Graph& graph,
                   const WorkloadConfig& config,
                   const HardwareProfile& profile) {
  const VertexPlan& from = plan.vertices[index(edge.from)];
  const VertexPlan& to = plan.vertices[index(edge.to)];
  if (from.placement == to.placement) return 0.0;
  const Vertex& receiver = graph.vertices[index(edge.to)];
  const double sequences =
      static_cast<double>(batch_units(receiver, config) * sequences_per_unit(receiver, config));
  const double bytes =
      sequences * data_bytes_per_sequence(graph.vertices[index(edge.from)].op, config);
  const auto tier = static_cast<std::size_t>(tier_between(from.placement, to.placement));
  return seconds(profile.point_to_point[tier], bytes / to.parallelism.dp);
}

void connect(TaskGraph* tasks, std::size_t from, std::size_t to, std::int64_t delta) {
  tasks->edges.push_back({static_cast<std::int32_t>(from), static_cast<std::int32_t>(to), delta});
}

/// A weights edge as a task: between the blocks at τ = 0, beside compute at τ ≥ 1.
void add_transfer(TaskGraph* tasks,
                  const Atoms& atoms,
                  const Edge& edge,
                  const Vertex& consumer,
                  TimedTask transfer,
                  double overlap_slowdown) {
  const std::size_t from = index(edge.from);
  const std::size_t to = index(edge.to);
  const std::size_t self = tasks->tasks.size();
  transfer.name = tasks->tasks[from].name + "->" + consumer.name;
  connect(tasks, from, self, 0);
  connect(tasks, self, to, edge.delta);
  if (edge.delta > 1) {
    transfer.time.comm_s *= overlap_slowdown;
    transfer.time.total_s *= overlap_slowdown;
    connect(tasks, self, self, 1);
  } else {
    hold(&transfer, atoms, 1U << from | 1U << to);
  }
  tasks->tasks.push_back(std::move(transfer));
}

std::vector<PlacementCell> cells_of(const Plan& plan) {
  std::vector<Placement> placements;
  placements.reserve(plan.vertices.size());
  for (const VertexPlan& vertex : plan.vertices) placements.push_back(vertex.placement);
  return cut_into_cells(placements);
}

TaskGraph build_tasks(const Plan& plan,
                      const Graph& graph,
                      const WorkloadConfig& config,
                      const HardwareProfile& profile,
                      const Atoms& atoms) {
  TaskGraph tasks;
  tasks.atom_count = static_cast<std::int32_t>(atoms.users.size());
  tasks.atom_gpus = atoms.gpus;
  for (std::size_t i = 0; i < graph.vertices.size(); ++i) {
    TimedTask task;
    task.name = graph.vertices[i].name;
    task.time = price_vertex(graph.vertices[i], plan.vertices[i], config, profile);
    hold(&task, atoms, 1U << i);
    tasks.tasks.push_back(std::move(task));
  }
  for (const Edge& edge : graph.edges) {
    const VertexPlan& from = plan.vertices[index(edge.from)];
    const VertexPlan& to = plan.vertices[index(edge.to)];
    if (edge.kind == EdgeKind::kData) {
      TaskTime& time = tasks.tasks[index(edge.to)].time;
      const double arrival_s = data_edge_s(edge, plan, graph, config, profile);
      time.comm_s += arrival_s;
      time.total_s += arrival_s;
    }
    if (edge.kind == EdgeKind::kWeights && !same_layout(from, to)) {
      const Vertex& consumer = graph.vertices[index(edge.to)];
      add_transfer(&tasks,
                   atoms,
                   edge,
                   consumer,
                   price_transfer(consumer, from, to, config, profile),
                   profile.overlap_slowdown);
    } else {
      connect(&tasks, index(edge.from), index(edge.to), edge.delta);
    }
  }
  return tasks;
}

}  // namespace

PricedPlan price_plan(const Plan& plan,
                      const Graph& graph,
                      const WorkloadConfig& config,
                      const HardwareProfile& profile) {
  check(plan.vertices.size() == graph.vertices.size(), "cost: plan and graph differ in vertices");
  const std::vector<PlacementCell> cells = cells_of(plan);
  PlanMemory memory = plan_memory(plan, graph, config, profile, cells);
  return {.tasks = build_tasks(plan, graph, config, profile, merge_cells(cells)),
          .memory = std::move(memory.vertices),
          .peak_bytes = memory.peak_bytes,
          .limit_bytes = memory.limit_bytes,
          .overflow = memory.overflow,
          .overflow_text = std::move(memory.overflow_text)};
}

}  // namespace rpeg
