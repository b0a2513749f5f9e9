#include "search/relaxed_frontier.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rpeg/plan/plan.h"

namespace rpeg::search {
namespace {

constexpr std::int64_t kMostPriced = 800'000;  // splits of a kind; beyond, FLOPs must do
constexpr double kBucket = 1.15;               // ratio of the largest to the smallest dp of a range

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Groups of tp lie on a node each, everything else between nodes.
VertexPlan spread(const Parallelism& split, std::int64_t micro_batches) {
  return {split, micro_batches, {{0, 0}, {0, split.dp * split.pp - 1}, {0, split.tp - 1}}};
}

class Relaxation {
 public:
  Relaxation(const SubPlanTable& table, std::size_t kind)
      : table_(table),
        kind_(kind),
        vertex_(table.space().kinds[kind]),
        profile_(with_free_wires(table.profile())) {
    const WorkloadConfig& config = table.config();
    const ClusterSpec& cluster = config.hardware;
    gpus_ = std::min(cluster.gpu_count(), cluster.max_gpus.value_or(cluster.gpu_count()));
    const std::int64_t parts = is_training(vertex_.op) ? config.policy.minibatches : 1;
    most_units_ = ceil_divide(batch_units(vertex_, config), parts);
  }

  /// Empty `*points` with true: none fits. False: there are too many splits to price.
  bool find_points(std::vector<Point>* points) {
    for (const int tp : table_.tensor_sizes(kind_)) {
      const int most = std::min(table_.most_stages(kind_), gpus_ / tp);
      for (int pp = 1; pp <= most && priced_ <= kMostPriced; ++pp) add_stages(pp, tp);
    }
    *points = std::move(points_);
    return priced_ <= kMostPriced;
  }

 private:
  /// Generation in stages is monotone between changes of its number of prefill calls only; those
  /// change with the prompts of a replica.
  std::int64_t prompts(int dp) const {
    const WorkloadSpec& workload = table_.config().workload;
    return ceil_divide(ceil_divide(workload.sequences(), dp), workload.samples_per_prompt);
  }

  void add_stages(int pp, int tp) {
    const int largest = static_cast<int>(
        std::min<std::int64_t>(gpus_ / (pp * tp), table_.most_micro_batches(kind_, {1, pp, tp})));
    const bool in_stages = vertex_.op == Op::kGenerate && pp > 1;
    for (int low = 1; low <= largest && priced_ <= kMostPriced;) {
      int high = std::clamp(static_cast<int>(low * kBucket), low, largest);
      while (in_stages && prompts(high) != prompts(low)) --high;
      add_range(low, high, pp, tp);
      low = high + 1;
    }
  }

  /// All plans with dp from low to high: powers of two of micro-batches, and the largest number.
  void add_range(int low, int high, int pp, int tp) {
    const double least_gpus = static_cast<double>(low) * pp * tp;
    const auto add = [&](int dp, std::int64_t m) {
      ++priced_;
      if (!fits({dp, pp, tp}, m)) return;
      const double time_s = relaxed_time_s(table_, kind_, {dp, pp, tp}, m, profile_);
      points_.push_back({time_s, least_gpus * time_s});
    };
    const std::int64_t most = table_.most_micro_batches(kind_, {low, pp, tp});
    if (vertex_.op == Op::kGenerate && pp == 1) {
      add(high, 1);
      return;
    }
    // Of the range only those dp have m micro-batches that leave each a unit.
    const std::int64_t units = table_.most_micro_batches(kind_, {1, pp, tp});
    for (std::int64_t m = 1; m <= most; m *= 2) {
      add(static_cast<int>(std::min<std::int64_t>(high, units / m)), m);
    }
    // The largest numbers of the range are at least this; one unit a micro-batch is the least work.
    const std::int64_t m = table_.most_micro_batches(kind_, {high, pp, tp});
    add(static_cast<int>(std::max<std::int64_t>(high, ceil_divide(most_units_, m))), m);
  }

  bool fits(const Parallelism& split, std::int64_t m) const {
    const WorkloadConfig& config = table_.config();
    const VertexPlan plan = spread(split, m);
    const std::int64_t slots =
        vertex_.op == Op::kGenerate ? std::min(replica_batch(plan, config), m) : 1;
    return part_memory(vertex_, plan, whole_response(config.workload), slots, config, profile_)
               .total <= profile_.memory_per_gpu;
  }

  const SubPlanTable& table_;
  std::size_t kind_;
  const Vertex& vertex_;
  HardwareProfile profile_;
  int gpus_ = 1;
  std::int64_t priced_ = 0;
  std::int64_t most_units_ = 1;  ///< of a mini-batch
  std::vector<Point> points_;
};

/// No GPU does the work of `op` faster than this; on no block the observed factor is less.
double fastest_rate(const HardwareProfile& profile, Op op) {
  double rate = std::max(1.0, profile.attention_eff);
  for (const auto& [tp, share] : profile.flops_eff_tp) rate = std::max(rate, share);
  return rate * profile.flops_per_gpu / least_observed_factor(profile.observed, work_class(op));
}

/// No GPU is faster than its fastest rate. Generation counts without its prompts, which the samples
/// of a group share.
Point point_by_flop(const SubPlanTable& table, std::size_t kind) {
  const Vertex& vertex = table.space().kinds[kind];
  WorkloadConfig config = table.config();
  if (vertex.op == Op::kGenerate) config.workload.context_length = 0;
  const double gpu_s = vertex_model_flop(vertex, config) / fastest_rate(table.profile(), vertex.op);
  return {gpu_s / config.hardware.gpu_count(), gpu_s};
}

/// GPU time of a vertex in chunks at the fastest rate of the hardware. Chunks hold whole units: at
/// every cut one unit may count with the lengths of the chunk before, altogether at most two of the
/// longest.
double least_gpu_s(const SubPlanTable& table, std::size_t kind) {
  const Vertex& vertex = table.space().kinds[kind];
  WorkloadConfig longest = table.config();
  longest.workload.batch_size = 2;
  longest.workload.generation_length *=
      2;  // lengths are spread below it: their mean is the longest
  longest.workload.gen_quantiles = {{1.0, static_cast<double>(longest.workload.generation_length)}};
  const double flop =
      vertex_model_flop(vertex, table.config()) - vertex_model_flop(vertex, longest);
  return std::max(0.0, flop) / fastest_rate(table.profile(), vertex.op);
}

}  // namespace

HardwareProfile with_free_wires(HardwareProfile profile) {
  // A group may straddle nodes when its block is no multiple of it; in parts it sends as many
  // bytes.
  AlphaBeta least = profile.collective[0];
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    least.alpha_s = std::min(least.alpha_s, profile.collective[tier].alpha_s);
    least.beta_s_per_byte =
        std::min(least.beta_s_per_byte, profile.collective[tier].beta_s_per_byte);
  }
  for (const auto& table : profile.collective_table) {
    if (!table.empty()) least = {};
  }
  profile.collective = {least, {}, {}};
  profile.collective_table = {};
  profile.point_to_point = {};
  profile.point_to_point_table = {};
  profile.alpha_step_s = {};
  profile.node_bytes_per_s = 0.0;
  profile.rack_bytes_per_s = 0.0;
  for (std::size_t i = 0; i < kWorkClasses; ++i) {
    const auto work = static_cast<WorkClass>(i);
    profile.observed.of(work, Tier::kNode) = {
        .factor = least_observed_factor(profile.observed, work), .spread = 0.0, .samples = 1};
    profile.observed.of(work, Tier::kRack) = {};
    profile.observed.of(work, Tier::kCluster) = {};
  }
  return profile;
}

double relaxed_time_s(const SubPlanTable& table,
                      std::size_t kind,
                      const Parallelism& split,
                      std::int64_t micro_batches,
                      const HardwareProfile& profile) {
  const WorkloadConfig& config = table.config();
  const VertexPlan plan = spread(split, micro_batches);
  // A slot for every sequence: no plan has more.
  return std::min(price_part(table.space().kinds[kind],
                             plan,
                             whole_response(config.workload),
                             replica_batch(plan, config),
                             config,
                             profile)
                      .total_s,
                  kLongestTask_s);
}

KindFrontiers relaxed_frontiers(const SubPlanTable& table, std::size_t kind) {
  KindFrontiers frontiers;
  std::vector<Point> points;
  if (!Relaxation(table, kind).find_points(&points)) points = {point_by_flop(table, kind)};
  frontiers.whole = pareto(std::move(points));
  frontiers.cut = frontiers.whole;
  frontiers.last_chunk = frontiers.whole;
  if (table.space().cuts != 0 && is_inference(table.space().kinds[kind].op)) {
    // Chunks do the work of the whole at best, and the last may be as short as one likes.
    frontiers.cut = {{0.0, least_gpu_s(table, kind)}};
    frontiers.last_chunk = {{0.0, 0.0}};
  }
  return frontiers;
}

}  // namespace rpeg::search
