#include "search/frontier.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "rpeg/sim/simulator.h"

namespace rpeg::search {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int kGpusPerPrice = 4096;  // whose groups are enumerated in the time of one price

/// Calls `visit(block)` for a block of every shape within hardware.max_gpus.
template <typename Visit>
void for_each_shape(const ClusterSpec& cluster, const Visit& visit) {
  const int most = std::min(cluster.gpu_count(), cluster.max_gpus.value_or(cluster.gpu_count()));
  for (int racks = 1; racks <= cluster.racks; ++racks) {
    for (int nodes = 1; nodes <= cluster.nodes_per_rack && racks * nodes <= most; ++nodes) {
      for (int gpus = 1; gpus <= cluster.gpus_per_node && racks * nodes * gpus <= most; ++gpus) {
        if (!visit(Placement{{0, racks - 1}, {0, nodes - 1}, {0, gpus - 1}})) return;
      }
    }
  }
}

/// Prices one kind of vertex for a bound: nothing of what it leaves out makes a plan faster.
class Pricer {
 public:
  Pricer(const SubPlanTable& table, std::size_t kind)
      : config_(table.config()),
        profile_(table.profile()),
        vertex_(table.space().kinds[kind]),
        whole_(whole_response(config_.workload)) {
    points_.push_back(0);
    for (std::int32_t point = 1; point < whole_.last; ++point) {
      if ((table.space().cuts >> (point - 1) & 1U) != 0) points_.push_back(point);
    }
    points_.push_back(whole_.last);
  }

  bool is_cut() const { return points_.size() > 2 && is_inference(vertex_.op); }

  /// Whether the vertex fits alone, generation with the fewest slots.
  bool fits(const VertexPlan& plan) const {
    return part_memory(vertex_, plan, whole_, least_slots(plan), config_, profile_).total <=
           profile_.memory_per_gpu;
  }

  double whole_s(const VertexPlan& plan) const {
    const double time_s =
        price_part(vertex_, plan, whole_, most_slots(plan), config_, profile_).total_s;
    return std::min(time_s, kLongestTask_s);
  }
  double last_chunk_s(const VertexPlan& plan) const {
    return part_s(plan, points_.size() - 2, points_.size() - 1);
  }
  /// The least sum over all ways to cut: the shortest path from the first boundary to the last.
  double cut_s(const VertexPlan& plan) const {
    std::vector<double> least(points_.size(), kInfinite);
    least[0] = 0.0;
    for (std::size_t to = 1; to < points_.size(); ++to) {
      for (std::size_t from = 0; from < to; ++from) {
        least[to] = std::min(least[to], least[from] + part_s(plan, from, to));
      }
    }
    return least.back();
  }

 private:
  double part_s(const VertexPlan& plan, std::size_t from, std::size_t to) const {
    const ResponsePart part{points_[from], points_[to]};
    return std::min(price_part(vertex_, plan, part, 1, config_, profile_).total_s, kLongestTask_s);
  }

  /// More slots than any plan can have: nothing but the weights beside the cache.
  std::int64_t most_slots(const VertexPlan& plan) const {
    if (vertex_.op != Op::kGenerate) return 1;
    const double weights = vertex_memory(vertex_, plan, config_, profile_).weights;
    const double free_bytes = profile_.memory_per_gpu - profile_.reserve_bytes - weights;
    const double slots = std::floor(free_bytes / kv_slot_bytes(plan, config_));
    const std::int64_t batch = replica_batch(plan, config_);
    if (slots >= static_cast<double>(batch)) return batch;
    return std::max(least_slots(plan), static_cast<std::int64_t>(slots));
  }

  std::int64_t least_slots(const VertexPlan& plan) const {
    if (vertex_.op != Op::kGenerate) return 1;
    return std::min(replica_batch(plan, config_), std::max<std::int64_t>(1, plan.micro_batches));
  }

  const WorkloadConfig& config_;
  const HardwareProfile& profile_;
  const Vertex& vertex_;
  ResponsePart whole_;
  std::vector<std::int32_t> points_;  ///< boundaries at which a chunk may begin or end
};

}  // namespace

Frontier pareto(std::vector<Point> points) {
  std::ranges::sort(points, [](const Point& a, const Point& b) {
    return a.time_s != b.time_s ? a.time_s < b.time_s : a.gpu_s < b.gpu_s;
  });
  Frontier frontier;
  for (const Point& point : points) {
    if (frontier.empty() || point.gpu_s < frontier.back().gpu_s) frontier.push_back(point);
  }
  return frontier;
}

double gpu_s_within(const Frontier& frontier, double time_s) {
  const auto beyond = std::ranges::upper_bound(frontier, time_s, {}, &Point::time_s);
  return beyond == frontier.begin() ? kInfinite : std::prev(beyond)->gpu_s;
}

double least_time_s(const SubPlanTable& table, std::size_t kind, const VertexPlan& plan) {
  return Pricer(table, kind).whole_s(plan);
}

std::int64_t count_sub_plans(SubPlanTable& table, std::int64_t most) {
  std::int64_t count = 0;
  const auto parts = static_cast<std::int64_t>(std::popcount(table.space().cuts) + 1);
  for_each_shape(table.config().hardware, [&](const Placement& block) {
    for (std::size_t kind = 0; kind < table.space().kinds.size(); ++kind) {
      const bool is_cut = parts > 1 && is_inference(table.space().kinds[kind].op);
      const auto each = is_cut ? 1 + parts * (parts + 1) / 2 : 1;
      // Groups that cross nodes unevenly are enumerated GPU by GPU.
      const std::int64_t weight = 1 + block.gpu_count() / kGpusPerPrice;
      count += weight * each * static_cast<std::int64_t>(table.of(kind, block).all.size());
    }
    table.trim();
    return count <= most;
  });
  return count;
}

KindFrontiers kind_frontiers(SubPlanTable& table, std::size_t kind) {
  const Pricer pricer(table, kind);
  std::vector<Point> whole;
  std::vector<Point> cut;
  std::vector<Point> last_chunk;
  for_each_shape(table.config().hardware, [&](const Placement& block) {
    const double gpus = block.gpu_count();
    for (const SubPlan& sub_plan : table.of(kind, block).all) {
      const VertexPlan plan = place(sub_plan, block);
      if (pricer.fits(plan)) {
        const double time_s = pricer.whole_s(plan);
        whole.push_back({time_s, gpus * time_s});
      }
      if (!pricer.is_cut()) continue;
      const double time_s = pricer.cut_s(plan);
      cut.push_back({time_s, gpus * time_s});
      const double last_s = pricer.last_chunk_s(plan);
      last_chunk.push_back({last_s, gpus * last_s});
    }
    table.trim();
    return true;
  });
  KindFrontiers frontiers{pareto(std::move(whole)), {}, {}};
  frontiers.cut = pricer.is_cut() ? pareto(std::move(cut)) : frontiers.whole;
  frontiers.last_chunk = pricer.is_cut() ? pareto(std::move(last_chunk)) : frontiers.whole;
  return frontiers;
}

}  // namespace rpeg::search
