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

constexpr std::size_t kMostSlots = std::size_t{1} << 15;  // of each memo; 64 to 96 bytes a slot
constexpr std::size_t kMostSkeletons = 256;
constexpr int kMostGpus = 1 << 20;  // so that three counts fit into one word of a key

std::uint64_t pack(int a, int b, int c) {
  return static_cast<std::uint64_t>(a) << 40U | static_cast<std::uint64_t>(b) << 20U |
         static_cast<std::uint64_t>(c);
}

std::uint64_t split_key(const Parallelism& p) { return pack(p.dp - 1, p.pp - 1, p.tp - 1); }

/// The extent of a block: vertices cost the same wherever their block lies.
std::uint64_t shape_key(const Placement& block) {
  return pack(block.racks.count() - 1, block.nodes.count() - 1, block.gpus.count() - 1);
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

/// Prices every piece once (see assemble_plan).
class KnownPieces {
 public:
  KnownPieces(const WorkloadConfig& config, const HardwareProfile& profile)
      : config_(config), profile_(profile) {}

  void make_room() {
    memories_.make_room(kMaxPlanVertices);
    times_.make_room(kMaxPlanTasks);
    transfers_.make_room(kMaxPlanVertices);
  }

  const VertexMemory& memory(const PlanSkeleton& skeleton,
                             std::size_t vertex,
                             const VertexPlan& plan) {
    const std::uint64_t cuts = skeleton.structure.cuts;
    return memories_.get({vertex_key(vertex) | split_key(plan.parallelism),
                          share_key(skeleton) | shape_key(plan.placement),
                          static_cast<std::uint64_t>(plan.micro_batches),
                          cuts},
                         [&] { return price_memory(skeleton, vertex, plan, config_, profile_); });
  }

  const TaskTime& time(const PlanSkeleton& skeleton,
                       std::size_t task,
                       const VertexPlan& plan,
                       std::int64_t slots) {
    const auto vertex = static_cast<std::size_t>(skeleton.fused.base[task]);
    const ResponsePart& part = skeleton.part(task);
    const auto boundaries = static_cast<std::uint64_t>(part.first) << 32U |
                            static_cast<std::uint64_t>(part.last) << 48U;
    return times_.get({vertex_key(vertex) | split_key(plan.parallelism),
                       share_key(skeleton) | shape_key(plan.placement),
                       static_cast<std::uint64_t>(plan.micro_batches),
                       boundaries | static_cast<std::uint64_t>(slots)},
                      [&] {
                        const Vertex& what = skeleton.fused.graph.vertices[task];
                        return price_part(what, plan, part, slots, config_, profile_);
                      });
  }

  const Transfer& transfer(const PlanSkeleton& skeleton,
                           std::size_t consumer,
                           const VertexPlan& from,
                           const VertexPlan& to) {
    return transfers_.get({vertex_key(consumer) | split_key(from.parallelism),
                           share_key(skeleton) | split_key(to.parallelism),
                           shape_key(from.placement),
                           shape_key(to.placement),
                           offset_key(from.placement, to.placement)},
                          [&] {
                            const Vertex& what = skeleton.graph.vertices[consumer];
                            return price_weights(what, from, to, config_, profile_);
                          });
  }

 private:
  const WorkloadConfig& config_;
  const HardwareProfile& profile_;
  Memo<4, VertexMemory> memories_{kMostSlots};
  Memo<4, TaskTime> times_{kMostSlots};
  Memo<5, Transfer> transfers_{kMostSlots};
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
  my.pieces.make_room();
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
