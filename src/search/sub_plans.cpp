#include "search/sub_plans.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "rpeg/base/error.h"

namespace rpeg::search {
namespace {

constexpr std::size_t kMostKept = 400'000;  // sub-plans; about 10 MB

std::uint64_t shape_key(std::size_t kind, const Placement& block) {
  // A cluster has at most a million GPUs: 20 bits each.
  return static_cast<std::uint64_t>(kind) << 60U |
         static_cast<std::uint64_t>(block.racks.count()) << 40U |
         static_cast<std::uint64_t>(block.nodes.count()) << 20U |
         static_cast<std::uint64_t>(block.gpus.count());
}

/// A block of every shape at the first corner of a region: most GPUs first, then fewest nodes.
std::vector<Placement> blocks_inside(const Placement& region) {
  std::vector<Placement> blocks;
  for (int racks = 0; racks < region.racks.count(); ++racks) {
    for (int nodes = 0; nodes < region.nodes.count(); ++nodes) {
      for (int gpus = 0; gpus < region.gpus.count(); ++gpus) {
        blocks.push_back({{region.racks.first, region.racks.first + racks},
                          {region.nodes.first, region.nodes.first + nodes},
                          {region.gpus.first, region.gpus.first + gpus}});
      }
    }
  }
  std::ranges::sort(blocks, {}, [](const Placement& block) {
    return std::tuple(-block.gpu_count(), block.racks.count() * block.nodes.count(), block);
  });
  return blocks;
}

}  // namespace

SubPlanTable::SubPlanTable(const Space& space, const HardwareProfile& profile)
    : space_(space), profile_(profile) {
  check(space.kinds.size() < 16, "search: more kinds of vertices than a key holds");
  for (const Vertex& vertex : space.kinds) limits_.push_back(limits_of(vertex));
}

SubPlanTable::Limits SubPlanTable::limits_of(const Vertex& vertex) const {
  const WorkloadConfig& config = *space_.config;
  Limits limits;
  limits.generates = vertex.op == Op::kGenerate;
  limits.units =
      batch_units(vertex, config) / (is_training(vertex.op) ? config.policy.minibatches : 1);
  const std::int64_t layers = config.model(vertex.model).layers;
  limits.pp = static_cast<int>(std::min(layers, config.optimizer.max_pp.value_or(layers)));
  const Graph alone{{vertex}, {}};
  const std::int64_t heads = config.model(vertex.model).num_heads;
  const int most = static_cast<int>(std::min<std::int64_t>(config.hardware.gpus_per_node, heads));
  WorkloadConfig unlimited = config;
  unlimited.hardware.max_gpus.reset();
  for (int tp = 1; tp <= most; ++tp) {
    Plan one;
    one.vertices = {{{1, 1, tp}, 1, {{0, 0}, {0, 0}, {0, tp - 1}}}};
    if (find_violations(one, alone, unlimited).empty()) limits.tp.push_back(tp);
  }
  return limits;
}

std::int64_t SubPlanTable::most_micro_batches(std::size_t kind, const Parallelism& split) const {
  constexpr std::int64_t kMost = 1 << 20;  // what the keys of the evaluator hold
  return std::min(kMost, limits_[kind].units / split.dp);
}

bool SubPlanTable::is_valid(std::size_t kind,
                            const Placement& block,
                            const Parallelism& split,
                            std::int64_t micro_batches) const {
  const Limits& limits = limits_[kind];
  return split.gpus() == block.gpu_count() && split.pp <= limits.pp && micro_batches >= 1 &&
         micro_batches <= most_micro_batches(kind, split) &&
         std::ranges::find(limits.tp, split.tp) != limits.tp.end() &&
         keeps_pin(space_.pins[kind], {split, micro_batches, block});
}

/// Powers of two, the largest number, and the pinned one. Generation splits its batch only to fill
/// a pipeline.
void SubPlanTable::add_micro_batches(std::size_t kind,
                                     const Parallelism& split,
                                     SubPlans& result) const {
  const std::int64_t most = most_micro_batches(kind, split);
  if (most < 1) return;
  const std::optional<std::int64_t>& pinned = space_.pins[kind].micro_batches;
  if (pinned) {
    if (*pinned <= most) result.all.push_back({split, *pinned});
    return;
  }
  if (limits_[kind].generates && split.pp == 1) {
    result.all.push_back({split, 1});
    return;
  }
  std::int64_t m = 1;
  for (; m <= most; m *= 2) result.all.push_back({split, m});
  if (m / 2 != most) result.all.push_back({split, most});
}

SubPlans SubPlanTable::enumerate(std::size_t kind, const Placement& block) const {
  const Limits& limits = limits_[kind];
  const Pin& pin = space_.pins[kind];
  const int gpus = block.gpu_count();
  SubPlans result;
  for (const int tp : limits.tp) {
    if (gpus % tp != 0) continue;
    for (int pp = 1; pp <= std::min(limits.pp, gpus / tp); ++pp) {
      if (gpus / tp % pp != 0) continue;
      const Parallelism split{gpus / tp / pp, pp, tp};
      if (pin.parallelism && *pin.parallelism != split) continue;
      add_micro_batches(kind, split, result);
    }
  }
  return result;
}

SubPlans& SubPlanTable::entry(std::size_t kind, const Placement& block) {
  const auto [place, is_new] = table_.try_emplace(shape_key(kind, block));
  if (is_new) {
    place->second = enumerate(kind, block);
    kept_ += place->second.all.size() + 4;
  }
  return place->second;
}

Alone SubPlanTable::alone(std::size_t kind, const VertexPlan& plan) const {
  const Vertex& vertex = space_.kinds[kind];
  const ResponsePart whole = whole_response(config().workload);
  Alone result;
  result.bytes = vertex_memory(vertex, plan, config(), profile_).total;
  result.fits = result.bytes <= profile_.memory_per_gpu;
  std::int64_t slots = 1;
  if (vertex.op == Op::kGenerate) {
    slots = replica_batch(plan, config());
    if (!result.fits) {
      // A cache too small for the whole batch serves it with fewer slots, one for each micro-batch
      // at least.
      const std::int64_t least = std::min(slots, std::max<std::int64_t>(1, plan.micro_batches));
      const double fixed = part_memory(vertex, plan, whole, 0, config(), profile_).total;
      const double each = kv_slot_bytes(plan, config());
      const double fitting = std::floor((profile_.memory_per_gpu - fixed) / each);
      result.fits = fitting >= static_cast<double>(least);
      slots = result.fits ? std::min(slots, static_cast<std::int64_t>(fitting)) : least;
      result.bytes = fixed + static_cast<double>(slots) * each;
    }
  }
  result.time_s = price_part(vertex, plan, whole, slots, config(), profile_).total_s;
  return result;
}

const SubPlan& SubPlanTable::fastest(std::size_t kind, const Placement& block) {
  SubPlans& choices = entry(kind, block);
  if (!choices.fastest) {
    check(!choices.all.empty(), "search: no sub-plan to choose from");
    std::pair<bool, double> least;
    for (std::size_t i = 0; i < choices.all.size(); ++i) {
      const Alone one = alone(kind, place(choices.all[i], block));
      const std::pair rank(!one.fits, one.fits ? one.time_s : one.bytes);
      if (choices.fastest && rank >= least) continue;
      least = rank;
      choices.fastest = i;
    }
  }
  return choices.all[*choices.fastest];
}

void SubPlanTable::trim() {
  if (kept_ <= kMostKept) return;
  table_.clear();
  kept_ = 0;
}

VertexPlan place(const SubPlan& sub_plan, const Placement& block) {
  return {sub_plan.parallelism, sub_plan.micro_batches, block};
}

Placement usable_block(const ClusterSpec& cluster) {
  const int most = std::min(cluster.gpu_count(), cluster.max_gpus.value_or(cluster.gpu_count()));
  const Placement whole{
      {0, cluster.racks - 1}, {0, cluster.nodes_per_rack - 1}, {0, cluster.gpus_per_node - 1}};
  if (whole.gpu_count() <= most) return whole;
  for (const Placement& block : blocks_inside(whole)) {
    if (block.gpu_count() <= most) return block;
  }
  throw Error(ErrorKind::kUsage, "hardware.max_gpus must be at least 1");
}

std::optional<Placement> largest_block(SubPlanTable& table,
                                       std::size_t kind,
                                       const Placement& region) {
  const Pin& pin = table.space().pins[kind];
  if (pin.placement) {
    return table.has_any(kind, *pin.placement) ? pin.placement : std::nullopt;
  }
  const bool any_size = !pin.parallelism;
  if (any_size && table.has_any(kind, region)) return region;
  for (const Placement& block : blocks_inside(region)) {
    if (!any_size && block.gpu_count() != pin.parallelism->gpus()) continue;
    if (table.has_any(kind, block)) return block;
  }
  return std::nullopt;
}

}  // namespace rpeg::search
