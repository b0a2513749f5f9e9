#include "search/evaluator.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "rpeg/base/error.h"
#include "rpeg/cost/assembly.h"
#include "rpeg/search/evaluation.h"
#include "rpeg/sim/steady_solver.h"
#include "search/memo.h"

namespace rpeg::search {
namespace {

constexpr std::size_t kMostSlots = std::size_t{1} << 17;  // of each memo, of 64 bytes
constexpr std::size_t kMostSkeletons = 256;
constexpr int kMostGpus = 1 << 20;  // so that three counts fit into one word of a key

std::uint64_t pack(int a, int b, int c) {
  return static_cast<std::uint64_t>(a) << 40U | static_cast<std::uint64_t>(b) << 20U |
         static_cast<std::uint64_t>(c);
}

/// How a block of a known extent is split (dp follows), and the micro-batches.
std::uint64_t split_key(const VertexPlan& plan) {
  check(plan.micro_batches <= kMostGpus, "search: more than 2^20 micro-batches");
  return pack(
      static_cast<int>(plan.micro_batches) - 1, plan.parallelism.pp - 1, plan.parallelism.tp - 1);
}

/// The extent of a block: vertices cost the same wherever their block lies.
std::uint64_t shape_key(const Placement& block) {
  return pack(block.racks.count() - 1, block.nodes.count() - 1, block.gpus.count() - 1);
}

/// The same without micro-batches: what of the weights lies where.
std::uint64_t layout_key(const VertexPlan& plan) {
  return pack(0, plan.parallelism.pp - 1, plan.parallelism.tp - 1);
}

/// Where a block lies as seen from another one.
std::uint64_t offset_key(const Placement& from, const Placement& to) {
  const auto shifted = [](const Range& a, const Range& b) {
    return static_cast<std::uint64_t>(b.first - a.first + kMostGpus);
  };
  return shifted(from.racks, to.racks) << 42U | shifted(from.nodes, to.nodes) << 21U |
         shifted(from.gpus, to.gpus);
}

/// A vertex as the first word of a key has it in its upper bits: never 0.
std::uint64_t vertex_key(std::size_t vertex) { return (vertex + 1) << 60U; }

std::uint64_t share_key(const PlanSkeleton& skeleton) {
  return (skeleton.structure.ac_share ? std::uint64_t{1} : std::uint64_t{0}) << 60U;
}

/// Prices every piece once (see assemble_plan). Most plans differ from the one before in a vertex
/// or two, so the pieces of the last plan are at hand without looking them up.
class KnownPieces {
 public:
  KnownPieces(const WorkloadConfig& config, const HardwareProfile& profile)
      : config_(config), profile_(profile) {}

  /// Begins a plan: finds what has changed, and begins to load the pieces that have.
  void begin(const PlanSkeleton& skeleton, const Plan& plan) {
    const bool moved = static_cast<int>(memories_.make_room(kMaxPlanVertices)) +
                           static_cast<int>(times_.make_room(kMaxPlanTasks)) +
                           static_cast<int>(transfers_.make_room(kMaxPlanVertices)) >
                       0;
    const Structure& structure = skeleton.structure;
    if (moved || structure.ac_share != ac_share_ || structure.cuts != cuts_) {
      vertices_.fill({});
    }
    ac_share_ = structure.ac_share;
    cuts_ = structure.cuts;
    for (std::size_t v = 0; v < plan.vertices.size(); ++v) {
      LastVertex& last = vertices_[v];
      if (last.memory != nullptr && last.plan == plan.vertices[v]) continue;
      last = {++changes_, plan.vertices[v], nullptr};
      memories_.prefetch(memory_key(skeleton, v, last.plan));
    }
    for (std::size_t task = 0; task < skeleton.task_count(); ++task) {
      const auto v = static_cast<std::size_t>(skeleton.fused.base[task]);
      if (last_times_[task].change == vertices_[v].change) continue;
      const std::int64_t slots =
          v == skeleton.generation ? replica_batch(plan.vertices[v], config_) : 0;  // a guess
      times_.prefetch(time_key(skeleton, task, plan.vertices[v], slots));
    }
    for (std::size_t i = 0; i < skeleton.weights.size(); ++i) {
      const PlanSkeleton::WeightsEdge& edge = skeleton.weights[i];
      if (is_current(last_transfers_[i], edge)) continue;
      transfers_.prefetch(
          transfer_key(skeleton, edge, plan.vertices[edge.from], plan.vertices[edge.to]));
    }
  }

  const VertexMemory& memory(const PlanSkeleton& skeleton,
                             std::size_t vertex,
                             const VertexPlan& plan) {
    LastVertex& last = vertices_[vertex];
    if (last.memory != nullptr) return *last.memory;
    last.memory = &memories_.get(memory_key(skeleton, vertex, plan), [&] {
      return price_memory(skeleton, vertex, plan, config_, profile_);
    });
    return *last.memory;
  }

  const TaskTime& time(const PlanSkeleton& skeleton,
                       std::size_t task,
                       const VertexPlan& plan,
                       std::int64_t slots) {
    const auto vertex = static_cast<std::size_t>(skeleton.fused.base[task]);
    LastTime& last = last_times_[task];
    if (last.change == vertices_[vertex].change && last.slots == slots) return *last.time;
    last.change = vertices_[vertex].change;
    last.slots = slots;
    last.time = &times_.get(time_key(skeleton, task, plan, slots), [&] {
      const Vertex& what = skeleton.fused.graph.vertices[task];
      return price_part(what, plan, skeleton.part(task), slots, config_, profile_);
    });
    return *last.time;
  }

  const Transfer& transfer(const PlanSkeleton& skeleton,
                           std::size_t weights_edge,
                           const VertexPlan& from,
                           const VertexPlan& to) {
    const PlanSkeleton::WeightsEdge& edge = skeleton.weights[weights_edge];
    LastTransfer& last = last_transfers_[weights_edge];
    if (is_current(last, edge)) return *last.transfer;
    last.change_from = vertices_[edge.from].change;
    last.change_to = vertices_[edge.to].change;
    last.transfer = &transfers_.get(transfer_key(skeleton, edge, from, to), [&] {
      return price_weights(skeleton.graph.vertices[edge.to], from, to, config_, profile_);
    });
    return *last.transfer;
  }

 private:
  using Key = std::array<std::uint64_t, 3>;
  using TransferKey = std::array<std::uint64_t, 5>;

  /// The last plan of a vertex; `change` numbers it, and no number comes twice.
  struct LastVertex {
    std::uint64_t change = 0;
    VertexPlan plan;
    const VertexMemory* memory = nullptr;
  };
  struct LastTime {
    std::uint64_t change = 0;
    std::int64_t slots = 0;
    const TaskTime* time = nullptr;
  };
  struct LastTransfer {
    std::uint64_t change_from = 0;
    std::uint64_t change_to = 0;
    const Transfer* transfer = nullptr;
  };

  bool is_current(const LastTransfer& last, const PlanSkeleton::WeightsEdge& edge) const {
    return last.change_from == vertices_[edge.from].change &&
           last.change_to == vertices_[edge.to].change;
  }

  static Key memory_key(const PlanSkeleton& skeleton, std::size_t vertex, const VertexPlan& plan) {
    return {vertex_key(vertex) | split_key(plan),
            share_key(skeleton) | shape_key(plan.placement),
            skeleton.structure.cuts};
  }

  static Key time_key(const PlanSkeleton& skeleton,
                      std::size_t task,
                      const VertexPlan& plan,
                      std::int64_t slots) {
    const ResponsePart& part = skeleton.part(task);
    const auto boundaries = static_cast<std::uint64_t>(part.first) << 48U |
                            static_cast<std::uint64_t>(part.last) << 56U;
    return {vertex_key(static_cast<std::size_t>(skeleton.fused.base[task])) | split_key(plan),
            share_key(skeleton) | shape_key(plan.placement),
            boundaries | static_cast<std::uint64_t>(slots)};
  }

  static TransferKey transfer_key(const PlanSkeleton& skeleton,
                                  const PlanSkeleton::WeightsEdge& edge,
                                  const VertexPlan& from,
                                  const VertexPlan& to) {
    return {vertex_key(edge.to) | layout_key(from),
            share_key(skeleton) | layout_key(to),
            shape_key(from.placement),
            shape_key(to.placement),
            offset_key(from.placement, to.placement)};
  }

  const WorkloadConfig& config_;
  const HardwareProfile& profile_;
  Memo<3, VertexMemory> memories_{kMostSlots};
  Memo<3, TaskTime> times_{kMostSlots};
  Memo<5, Transfer> transfers_{kMostSlots};
  bool ac_share_ = false;
  std::uint32_t cuts_ = 0;
  std::uint64_t changes_ = 0;
  std::array<LastVertex, kMaxPlanVertices> vertices_;
  std::array<LastTime, kMaxPlanTasks> last_times_;
  std::array<LastTransfer, kMaxPlanVertices> last_transfers_;
};

}  // namespace

struct Evaluator::Impl {
  Impl(const WorkloadConfig& job, const HardwareProfile& hardware)
      : config(job), profile(hardware), pieces(job, hardware) {}

  const PlanSkeleton& skeleton_of(const Structure& structure);
  void find_shares(const PlanSkeleton& skeleton, const SteadyOrder& steady, Score* score) const;

  const WorkloadConfig& config;
  const HardwareProfile& profile;
  std::map<Structure, PlanSkeleton> skeletons;
  const PlanSkeleton* last_skeleton = nullptr;
  KnownPieces pieces;
  Assembly assembly;
  CompactTasks tasks;
  SteadySolver solver;
};

const PlanSkeleton& Evaluator::Impl::skeleton_of(const Structure& structure) {
  if (last_skeleton != nullptr && last_skeleton->structure == structure) return *last_skeleton;
  auto found = skeletons.find(structure);
  if (found == skeletons.end()) {
    if (skeletons.size() >= kMostSkeletons) skeletons.clear();
    const Graph graph = build_graph(config.policy, structure);
    found = skeletons.emplace(structure, build_skeleton(graph, structure, config)).first;
  }
  last_skeleton = &found->second;
  return *last_skeleton;
}

/// As critical_shares: a transfer counts half for either end.
void Evaluator::Impl::find_shares(const PlanSkeleton& skeleton,
                                  const SteadyOrder& steady,
                                  Score* score) const {
  std::array<double, kMaxVertices> shares{};
  double total = 0.0;
  const auto add = [&](std::size_t vertex, double seconds) {
    shares[vertex] += seconds;
    total += seconds;
  };
  for (const std::int32_t id : steady.cycle) {
    const auto task = static_cast<std::size_t>(id);
    const double seconds = assembly.time[task].total_s;
    if (task < skeleton.task_count()) {
      add(static_cast<std::size_t>(skeleton.fused.base[task]), seconds);
      continue;
    }
    const PlanSkeleton::WeightsEdge& edge = skeleton.weights[assembly.transfer_of[task]];
    add(edge.from, seconds / 2);
    add(edge.to, seconds / 2);
  }
  const std::size_t vertices = skeleton.graph.vertices.size();
  for (std::size_t v = 0; v < vertices; ++v) {
    const double share = total > 0.0 ? shares[v] / total : 1.0 / static_cast<double>(vertices);
    score->critical[v] = static_cast<float>(share);
  }
}

Evaluator::Evaluator(const WorkloadConfig& config, const HardwareProfile& profile)
    : impl_(new Impl(config, profile)) {
  check(config.hardware.gpu_count() <= kMostGpus, "search: more than 2^20 GPUs");
}
Evaluator::~Evaluator() = default;

Score Evaluator::score(const Plan& plan) {
  Impl& my = *impl_;
  const PlanSkeleton& skeleton = my.skeleton_of(plan.structure);
  my.pieces.begin(skeleton, plan);
  assemble_plan(skeleton, plan, my.config, my.profile, my.pieces, &my.assembly);
  const Assembly& assembly = my.assembly;
  my.tasks.count = assembly.tasks;
  for (std::size_t task = 0; task < assembly.tasks; ++task) {
    my.tasks.duration_ns[task] = task_ns(assembly.time[task].total_s);
    my.tasks.conflicts[task] = assembly.conflicts[task];
  }
  my.tasks.edges.assign(assembly.edges.begin(),
                        assembly.edges.begin() + static_cast<std::ptrdiff_t>(assembly.edge_count));
  const SteadyOrder& steady = my.solver.solve(my.tasks);
  Score score;
  score.period_s = steady.period_s();
  score.objective = std::log(score.period_s);
  if (my.config.optimizer.objective == Objective::kCost) {
    score.objective += std::log(assembly.atoms.active_gpus);
  }
  score.overflow = assembly.overflow;
  my.find_shares(skeleton, steady, &score);
  return score;
}

Score full_score(const Plan& plan, const WorkloadConfig& config, const HardwareProfile& profile) {
  const Evaluation evaluation = evaluate_plan(plan, config, profile);
  Score score{plan_objective(evaluation, config),
              evaluation.priced.overflow,
              evaluation.steady.period_s,
              {}};
  const std::vector<double> shares = critical_shares(evaluation);
  for (std::size_t v = 0; v < shares.size(); ++v) {
    score.critical[v] = static_cast<float>(shares[v]);
  }
  return score;
}

void check_score(const Score& score,
                 const Plan& plan,
                 const WorkloadConfig& config,
                 const HardwareProfile& profile) {
  const Score full = full_score(plan, config, profile);
  if (score == full) return;
  throw Error(
      ErrorKind::kInternal,
      fmt::format("search: the remembered score of a plan (period {} s, overflow {}) differs "
                  "from its evaluation (period {} s, overflow {})",
                  score.period_s,
                  score.overflow,
                  full.period_s,
                  full.overflow));
}

}  // namespace rpeg::search
