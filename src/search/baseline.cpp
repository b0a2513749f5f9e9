#include "rpeg/search/baseline.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "rpeg/graph/graph.h"
#include "search/baselines.h"

namespace rpeg {
namespace search {
namespace {

VertexPlan fastest_on(SubPlanTable& table, std::size_t vertex, const Placement& region) {
  const Placement block = largest_block(table, vertex, region);
  const SubPlans& choices = table.of(vertex, block);
  return place(choices.all[choices.fastest], block);
}

PricedPlan price(const SubPlanTable& table, const Plan& plan) {
  return price_plan(
      plan, build_graph(table.config().policy, plan.structure), table.config(), table.profile());
}

/// The change of one vertex's split (same block) with the least added time per byte that it frees.
std::optional<Plan> cheapest_relief(SubPlanTable& table, const Plan& plan, const PricedPlan& now) {
  std::optional<Plan> best;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t v = 0; v < plan.vertices.size(); ++v) {
    const VertexPlan& old = plan.vertices[v];
    const auto current = table.find(v, old.placement, old.parallelism, old.micro_batches);
    for (const SubPlan& choice : table.of(v, old.placement).all) {
      if (!current || choice.bytes >= current->bytes) continue;
      Plan changed = plan;
      changed.vertices[v] = place(choice, old.placement);
      const PricedPlan priced = price(table, changed);
      const double freed = now.overflow - priced.overflow;
      if (freed <= 0.0) continue;
      const double rate = std::max(0.0, choice.time_s - current->time_s) / freed;
      if (rate < least) {
        least = rate;
        best = std::move(changed);
      }
    }
  }
  return best;
}

Plan relieve_memory(SubPlanTable& table, Plan plan) {
  while (true) {
    const PricedPlan priced = price(table, plan);
    if (priced.overflow <= 0.0) return plan;
    auto relieved = cheapest_relief(table, plan, priced);
    if (!relieved) return plan;
    plan = std::move(*relieved);
  }
}

/// `units` dealt by largest remainder to shares, at least 1 each (units >= shares).
std::vector<int> deal(int units, const std::vector<double>& shares) {
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<int> dealt;
  std::vector<std::pair<double, std::size_t>> remainders;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const double quota = total > 0.0 ? units * shares[i] / total : 0.0;
    dealt.push_back(static_cast<int>(quota));
    remainders.emplace_back(-(quota - dealt.back()), i);
  }
  std::ranges::sort(remainders);
  int left = units - std::accumulate(dealt.begin(), dealt.end(), 0);
  for (std::size_t i = 0; left > 0; i = (i + 1) % remainders.size(), --left) {
    ++dealt[remainders[i].second];
  }
  for (int& mine : dealt) {
    if (mine > 0) continue;
    --*std::ranges::max_element(dealt);
    mine = 1;
  }
  return dealt;
}

/// The models of the job in the order of ModelRole, with the FLOPs of their vertices.
std::vector<std::pair<ModelRole, double>> model_flops(const SubPlanTable& table) {
  std::array<double, kModelRoles> flop{};
  std::array<bool, kModelRoles> used{};
  for (const Vertex& vertex : table.vertices()) {
    const auto role = static_cast<std::size_t>(vertex.model);
    flop[role] += vertex_model_flop(vertex, table.config());
    used[role] = true;
  }
  std::vector<std::pair<ModelRole, double>> result;
  for (std::size_t role = 0; role < kModelRoles; ++role) {
    if (used[role]) result.emplace_back(static_cast<ModelRole>(role), flop[role]);
  }
  return result;
}

/// A pool for every model in the usable block: slices of its nodes, or of its GPUs when the nodes
/// are too few.
std::array<Placement, kModelRoles> pools(const SubPlanTable& table) {
  const Placement usable = usable_block(table.config().hardware);
  const auto models = model_flops(table);
  const auto count = static_cast<int>(models.size());
  const bool by_node = usable.nodes.count() > 1 && usable.nodes.count() >= count;
  const Range axis = by_node ? usable.nodes : usable.gpus;
  const auto own = static_cast<std::size_t>(std::min(count, axis.count()));
  std::vector<double> shares(own, 0.0);
  for (std::size_t i = 0; i < models.size(); ++i) {
    shares[std::min(i, own - 1)] += models[i].second;  // the last pool takes those left over
  }
  const std::vector<int> units = deal(axis.count(), shares);
  std::array<Placement, kModelRoles> result{};
  int first = axis.first;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const std::size_t pool = std::min(i, own - 1);
    const Range slice{first, first + units[pool] - 1};
    Placement block = usable;
    (by_node ? block.nodes : block.gpus) = slice;
    result[static_cast<std::size_t>(models[i].first)] = block;
    if (i + 1 < own) first += units[pool];
  }
  return result;
}

}  // namespace

Plan greedy(SubPlanTable& table) {
  const Placement usable = usable_block(table.config().hardware);
  Plan plan;
  for (std::size_t v = 0; v < table.vertices().size(); ++v) {
    plan.vertices.push_back(fastest_on(table, v, usable));
  }
  return relieve_memory(table, std::move(plan));
}

Plan concurrent(SubPlanTable& table) {
  const std::array<Placement, kModelRoles> pool = pools(table);
  Plan plan;
  for (std::size_t v = 0; v < table.vertices().size(); ++v) {
    const auto role = static_cast<std::size_t>(table.vertices()[v].model);
    plan.vertices.push_back(fastest_on(table, v, pool[role]));
  }
  return relieve_memory(table, std::move(plan));
}

}  // namespace search

Plan greedy_plan(const WorkloadConfig& config, const HardwareProfile& profile) {
  search::SubPlanTable table(config, profile);
  return search::greedy(table);
}

Plan concurrent_plan(const WorkloadConfig& config, const HardwareProfile& profile) {
  search::SubPlanTable table(config, profile);
  return search::concurrent(table);
}

}  // namespace rpeg
