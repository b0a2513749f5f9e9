#include "rpeg/search/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "search/frontier.h"
#include "search/relaxed_frontier.h"
#include "search/space_bound.h"

namespace rpeg {
namespace search {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
/// Sub-plans that are priced for a bound; a larger space gets a relaxed bound.
constexpr std::int64_t kMostSubPlans = 1'000'000;
constexpr double kBinding = 0.999;  // of the bound: a constraint that alone gives so much binds

/// The vertices of one class of structures, by their part in the graph. Null: the job has none.
struct Roles {
  const KindFrontiers* generate = nullptr;
  std::vector<const KindFrontiers*> inference;  ///< i_R, i_V, i_ref, i_pi
  const KindFrontiers* value = nullptr;         ///< i_V, in `inference` too
  const KindFrontiers* reward = nullptr;
  const KindFrontiers* reference = nullptr;
  const KindFrontiers* old_policy = nullptr;  ///< i_pi
  const KindFrontiers* train_critic = nullptr;
  const KindFrontiers* train = nullptr;  ///< t_pi or t_piV
};

/// A class of structures: all subsets of the cuts at once.
struct StructureClass {
  Structure structure;
  Roles roles;
  bool cut = false;           ///< the inference vertices may work in chunks
  bool in_turn = false;       ///< i_ref waits for i_R
  double train_delta = 1.0;   ///< iterations over which generation, inference, training must fit
  double critic_delta = 1.0;  ///< the same of i_V and t_V
  double gpus = 1.0;
};

/// The stretch between the end of generation and the start of training: how long, and the GPU time
/// of inference that it holds.
struct Window {
  double time_s = 0.0;
  double gpu_s = 0.0;
};

const Frontier& on_path(const StructureClass& c, const KindFrontiers& kind) {
  return c.cut ? kind.last_chunk : kind.whole;
}
double least_s(const Frontier& frontier) {
  return frontier.empty() ? kInfinite : frontier.front().time_s;
}

/// Windows of every useful length, ascending.
std::vector<Window> windows(const StructureClass& c) {
  double floor_s = 0.0;
  std::vector<double> lengths{0.0};
  for (const KindFrontiers* kind : c.roles.inference) {
    floor_s = std::max(floor_s, least_s(on_path(c, *kind)));
    for (const Point& point : on_path(c, *kind)) lengths.push_back(point.time_s);
  }
  if (c.in_turn && c.roles.reward != nullptr && c.roles.reference != nullptr) {
    floor_s = std::max(floor_s, least_s(c.roles.reward->whole) + least_s(c.roles.reference->whole));
  }
  std::ranges::sort(lengths);
  std::vector<Window> result;
  for (const double length : lengths) {
    double gpu_s = 0.0;
    for (const KindFrontiers* kind : c.roles.inference) {
      gpu_s += gpu_s_within(on_path(c, *kind), length);
    }
    if (gpu_s == kInfinite) continue;
    result.push_back({std::max({length, floor_s, gpu_s / c.gpus}), gpu_s});
  }
  return result;
}

/// Which constraints hold; to find out which of them binds.
struct Constraints {
  bool gpu_time = true;
  bool cycles = true;
};

/// Whether a period can be: a choice of points that leaves every vertex within the period, all GPU
/// time within the cluster's, and every cycle within its iterations.
class Feasibility {
 public:
  Feasibility(const StructureClass& c, const Constraints& constraints)
      : c_(c), constraints_(constraints), windows_(windows(c)) {
    if (c.roles.generate != nullptr) {
      generation_ = c.roles.generate->whole;
    } else {
      generation_ = {{0.0, 0.0}};
    }
  }

  bool holds(double period_s) const {
    const double critic_s = critic_gpu_s(period_s);
    const double room_s = c_.gpus * period_s - critic_s;
    if (critic_s == kInfinite) return false;
    double chunks_s = 0.0;
    for (const KindFrontiers* kind : c_.roles.inference) {
      chunks_s += gpu_s_within(c_.cut ? kind->cut : kind->whole, period_s);
    }
    if (chunks_s == kInfinite) return false;
    for (const Point& generation : generation_) {
      if (generation.time_s > period_s) break;
      if (fits_behind(generation, chunks_s, period_s, room_s)) return true;
    }
    return false;
  }

 private:
  double critic_gpu_s(double period_s) const {
    if (c_.roles.train_critic == nullptr) return 0.0;
    double time_s = period_s;
    if (constraints_.cycles && c_.roles.value != nullptr) {
      const double before_s = least_s(on_path(c_, *c_.roles.value));
      time_s = std::min(time_s, c_.critic_delta * period_s - before_s);
    }
    return gpu_s_within(c_.roles.train_critic->whole, time_s);
  }

  bool fits_behind(const Point& generation, double chunks_s, double period_s, double room_s) const {
    double most_train_s = period_s;
    if (constraints_.cycles && c_.roles.old_policy != nullptr) {
      most_train_s -= least_s(on_path(c_, *c_.roles.old_policy));
    }
    for (const Window& window : windows_) {
      double train_s = most_train_s;
      if (constraints_.cycles) {
        train_s = std::min(train_s, c_.train_delta * period_s - generation.time_s - window.time_s);
        if (train_s <= 0.0) break;
      }
      // Whole vertices work inside the window, so their GPU time is the window's; of vertices in
      // chunks only the last chunk does. Without cycles nothing says when they work.
      const bool by_window = constraints_.cycles && !c_.cut;
      const double inference_s = by_window ? std::max(window.gpu_s, chunks_s) : chunks_s;
      const double gpu_s =
          generation.gpu_s + inference_s + gpu_s_within(c_.roles.train->whole, train_s);
      if (gpu_s < kInfinite && (!constraints_.gpu_time || gpu_s <= room_s)) return true;
    }
    return false;
  }

  const StructureClass& c_;
  Constraints constraints_;
  std::vector<Window> windows_;
  Frontier generation_;
};

/// The least period that is not excluded, from below; infinite when no period is possible.
double least_period_s(const StructureClass& c, const Constraints& constraints) {
  const Feasibility feasibility(c, constraints);
  double low = 0.0;
  double high = least_s(c.roles.train->whole);
  if (high == kInfinite) return kInfinite;
  constexpr int kDoublings = 60;
  int doublings = 0;
  while (!feasibility.holds(high)) {
    low = high;
    high *= 2.0;
    if (++doublings > kDoublings) return kInfinite;
  }
  constexpr int kHalvings = 50;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = 0.5 * (low + high);
    (feasibility.holds(middle) ? high : low) = middle;
  }
  return low;
}

StructureClass make_class(const Space& space,
                          const std::vector<KindFrontiers>& frontiers,
                          const Structure& structure) {
  StructureClass c;
  c.structure = structure;
  c.cut = space.cuts != 0;
  c.in_turn = space.config->policy.algorithm == Algorithm::kDpo;
  for (const std::size_t kind : kinds_of(space, structure)) {
    const KindFrontiers* mine = &frontiers[kind];
    const Vertex& vertex = space.kinds[kind];
    if (is_inference(vertex.op)) c.roles.inference.push_back(mine);
    if (vertex.op == Op::kGenerate) c.roles.generate = mine;
    if (vertex.op == Op::kInferValue) c.roles.value = mine;
    if (vertex.op == Op::kInferReward) c.roles.reward = mine;
    if (vertex.op == Op::kInferReference) c.roles.reference = mine;
    if (vertex.op == Op::kInferActor) c.roles.old_policy = mine;
    if (!is_training(vertex.op)) continue;
    (vertex.model == ModelRole::kCritic ? c.roles.train_critic : c.roles.train) = mine;
  }
  c.train_delta = 1.0 + static_cast<double>(structure.tau_actor);
  c.critic_delta = 1.0 + static_cast<double>(structure.tau_critic);
  // An offline reference may run one iteration ahead.
  if (c.roles.generate == nullptr) c.train_delta = 2.0;
  const ClusterSpec& cluster = space.config->hardware;
  c.gpus = std::min(cluster.gpu_count(), cluster.max_gpus.value_or(cluster.gpu_count()));
  return c;
}

std::string gpus_text(double gpus) { return std::to_string(static_cast<int>(gpus)) + " GPUs"; }

std::string reason_of(const StructureClass& c, double period_s) {
  if (least_period_s(c, {.gpu_time = true, .cycles = false}) >= kBinding * period_s) {
    return "GPU time of all vertices over " + gpus_text(c.gpus);
  }
  const std::string tau = " at tau = " + std::to_string(c.structure.tau_actor);
  const std::string path =
      c.roles.generate != nullptr ? "generation, inference, training" : "reference, training";
  const std::string cycle = "the cycle of " + path + tau;
  if (least_period_s(c, {.gpu_time = false, .cycles = true}) >= kBinding * period_s) return cycle;
  return cycle + ", together with the GPU time of all vertices over " + gpus_text(c.gpus);
}

/// One structure per class of those that no other excludes less: staleness only loosens cycles.
std::vector<Structure> widest_structures(const Space& space) {
  const std::int64_t actor = std::ranges::max(space.tau_actor);
  std::vector<Structure> widest;
  if (!space.must_share) widest.push_back({actor, std::ranges::max(space.tau_critic), false, 0});
  if (space.may_share) widest.push_back({actor, actor, true, 0});
  return widest;
}

}  // namespace

SpaceBound bound_of(SubPlanTable& table) {
  const Space& space = table.space();
  const bool relaxed = count_sub_plans(table, kMostSubPlans) > kMostSubPlans;
  std::vector<KindFrontiers> frontiers;
  for (std::size_t kind = 0; kind < space.kinds.size(); ++kind) {
    frontiers.push_back(relaxed ? relaxed_frontiers(table, kind) : kind_frontiers(table, kind));
  }
  std::optional<StructureClass> best;
  double least_s = kInfinite;
  for (const Structure& structure : widest_structures(space)) {
    const StructureClass c = make_class(space, frontiers, structure);
    const double period_s = least_period_s(c, {});
    if (period_s >= least_s) continue;
    least_s = period_s;
    best = c;
  }
  if (!best) return {0.0, "some vertex fits into memory on no block"};
  const std::string how = relaxed ? ", network between nodes not counted" : "";
  return {least_s, reason_of(*best, least_s) + how};
}

}  // namespace search

SpaceBound space_bound(const WorkloadConfig& config, const HardwareProfile& profile) {
  const search::Space space = search::build_space(config, {});
  search::SubPlanTable table(space, profile);
  return search::bound_of(table);
}

double plan_bound_s(const TaskGraph& tasks) {
  std::vector<double> work(static_cast<std::size_t>(tasks.atom_count), 0.0);
  std::vector<double> durations;
  for (const TimedTask& task : tasks.tasks) {
    durations.push_back(task.time.total_s);
    for (const std::int32_t atom : task.atoms) {
      work[static_cast<std::size_t>(atom)] += task.time.total_s;
    }
  }
  double bound = maximum_cycle_ratio(durations, tasks.edges, nullptr);
  for (const double busy : work) bound = std::max(bound, busy);
  return bound;
}

}  // namespace rpeg
