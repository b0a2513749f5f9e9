#include "search/sub_plans.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "rpeg/base/error.h"

namespace rpeg::search {
namespace {

/// Smallest first; generation splits its batch only to fill a pipeline.
std::vector<std::int64_t> micro_batch_choices(const Vertex& vertex, const Parallelism& split) {
  if (vertex.op == Op::kGenerate && split.pp == 1) return {1};
  std::vector<std::int64_t> choices;
  for (std::int64_t m = 1; m <= (std::int64_t{1} << 20); m *= 2) choices.push_back(m);
  return choices;
}

std::vector<int> divisors(int number) {
  std::vector<int> result;
  for (int i = 1; i <= number; ++i) {
    if (number % i == 0) result.push_back(i);
  }
  return result;
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

SubPlanTable::SubPlanTable(const WorkloadConfig& config, const HardwareProfile& profile)
    : config_(config), profile_(profile), graph_(build_graph(config.policy, Structure{})) {}

SubPlans SubPlanTable::enumerate(std::size_t vertex, const Placement& block) const {
  const Graph alone{{graph_.vertices[vertex]}, {}};
  const Vertex& one = alone.vertices.front();
  SubPlans result;
  const int gpus = block.gpu_count();
  for (const int tp : divisors(gpus)) {
    for (const int pp : divisors(gpus / tp)) {
      const Parallelism split{gpus / tp / pp, pp, tp};
      for (const std::int64_t m : micro_batch_choices(one, split)) {
        const VertexPlan plan{split, m, block};
        // Validity falls with m: the first m that is not valid ends the list.
        if (!find_violations(Plan{{}, {plan}}, alone, config_).empty()) break;
        result.all.push_back({split,
                              m,
                              price_vertex(one, plan, config_, profile_).total_s,
                              vertex_memory(one, plan, config_, profile_).total});
      }
    }
  }
  const auto rank = [&](const SubPlan& plan) {
    const bool overflows = plan.bytes > profile_.memory_per_gpu;
    return std::pair(overflows, overflows ? plan.bytes : plan.time_s);
  };
  if (!result.all.empty()) {
    result.fastest = static_cast<std::size_t>(std::ranges::min_element(result.all, {}, rank) -
                                              result.all.begin());
  }
  return result;
}

const SubPlans& SubPlanTable::of(std::size_t vertex, const Placement& block) {
  const Key key{vertex, block.racks.count(), block.nodes.count(), block.gpus.count()};
  {
    const std::scoped_lock lock(mutex_);
    const auto found = table_.find(key);
    if (found != table_.end()) return *found->second;
  }
  auto made = std::make_unique<const SubPlans>(enumerate(vertex, block));
  const std::scoped_lock lock(mutex_);
  return *table_.try_emplace(key, std::move(made)).first->second;
}

std::optional<SubPlan> SubPlanTable::find(std::size_t vertex,
                                          const Placement& block,
                                          const Parallelism& parallelism,
                                          std::int64_t micro_batches) {
  for (const SubPlan& plan : of(vertex, block).all) {
    if (plan.parallelism == parallelism && plan.micro_batches == micro_batches) return plan;
  }
  return std::nullopt;
}

VertexPlan place(const SubPlan& sub_plan, const Placement& block) {
  return {sub_plan.parallelism, sub_plan.micro_batches, block};
}

Placement usable_block(const ClusterSpec& cluster) {
  const int most = std::min(cluster.gpu_count(), cluster.max_gpus.value_or(cluster.gpu_count()));
  const Placement whole{
      {0, cluster.racks - 1}, {0, cluster.nodes_per_rack - 1}, {0, cluster.gpus_per_node - 1}};
  for (const Placement& block : blocks_inside(whole)) {
    if (block.gpu_count() <= most) return block;
  }
  throw Error(ErrorKind::kUsage, "hardware.max_gpus must be at least 1");
}

Placement largest_block(SubPlanTable& table, std::size_t vertex, const Placement& region) {
  for (const Placement& block : blocks_inside(region)) {
    if (!table.of(vertex, block).all.empty()) return block;
  }
  throw Error(ErrorKind::kInfeasible,
              "vertex " + table.vertices()[vertex].name + " has no valid split on any block of " +
                  placement_text(region));
}

}  // namespace rpeg::search
