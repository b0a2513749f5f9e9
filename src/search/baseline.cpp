#include "rpeg/search/baseline.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "rpeg/base/error.h"
#include "search/baselines.h"

namespace rpeg {
namespace search {
namespace {

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
std::vector<std::pair<ModelRole, double>> model_flops(const SubPlanTable& table,
                                                      const std::vector<std::size_t>& kinds) {
  std::array<double, kModelRoles> flop{};
  std::array<bool, kModelRoles> used{};
  for (const std::size_t kind : kinds) {
    const Vertex& vertex = table.space().kinds[kind];
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
std::array<Placement, kModelRoles> pools(const SubPlanTable& table,
                                         const std::vector<std::size_t>& kinds) {
  const Placement usable = usable_block(table.config().hardware);
  const auto models = model_flops(table, kinds);
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

/// The change of one vertex's split with the least added time per byte that it frees; false: none
/// frees any.
bool apply_cheapest_relief(SubPlanTable& table, Evaluator& evaluator, Plan& plan, Score& now) {
  std::optional<std::pair<std::size_t, VertexPlan>> best;
  double least = std::numeric_limits<double>::infinity();
  Score after;
  const std::vector<std::size_t>& kinds = kinds_of(table.space(), plan.structure);
  for (std::size_t v = 0; v < plan.vertices.size(); ++v) {
    const VertexPlan old = plan.vertices[v];
    for (const SubPlan& choice : table.of(kinds[v], old.placement).all) {
      plan.vertices[v] = place(choice, old.placement);
      const Score score = evaluator.score(plan);
      const double freed = now.overflow - score.overflow;
      if (freed <= 0.0) continue;
      const double rate = std::max(0.0, score.period_s - now.period_s) / freed;
      // Among equal rates (free ones, mostly) the one that frees most.
      if (rate > least || (rate == least && score.overflow >= after.overflow)) continue;
      least = rate;
      after = score;
      best = {v, plan.vertices[v]};
    }
    plan.vertices[v] = old;
  }
  if (!best) return false;
  plan.vertices[best->first] = best->second;
  now = after;
  return true;
}

}  // namespace

VertexPlan fastest_on(SubPlanTable& table, std::size_t kind, const Placement& region) {
  auto block = largest_block(table, kind, region);
  if (!block) block = largest_block(table, kind, usable_block(table.config().hardware));
  if (!block) {
    const Pin& pin = table.space().pins[kind];
    throw Error(ErrorKind::kInfeasible,
                "vertex " + table.space().kinds[kind].name +
                    " has no valid split on any block of the cluster" +
                    (pin.vertex.empty() ? "" : " that keeps its pin"));
  }
  return place(table.fastest(kind, *block), *block);
}

Plan relieve_memory(SubPlanTable& table, Evaluator& evaluator, Plan plan) {
  Score now = evaluator.score(plan);
  while (now.overflow > 0.0 && apply_cheapest_relief(table, evaluator, plan, now)) {
  }
  return plan;
}

Plan empty_plan(const Space& space) {
  Plan plan;
  plan.structure.tau_actor = space.tau_actor.front();
  plan.structure.ac_share = space.must_share;
  plan.structure.tau_critic = space.must_share ? space.tau_actor.front() : space.tau_critic.front();
  plan.vertices.resize(kinds_of(space, plan.structure).size());
  return plan;
}

Plan greedy(SubPlanTable& table, Evaluator& evaluator) {
  const Placement usable = usable_block(table.config().hardware);
  Plan plan = empty_plan(table.space());
  const std::vector<std::size_t>& kinds = kinds_of(table.space(), plan.structure);
  for (std::size_t v = 0; v < kinds.size(); ++v) {
    plan.vertices[v] = fastest_on(table, kinds[v], usable);
  }
  return relieve_memory(table, evaluator, std::move(plan));
}

Plan concurrent(SubPlanTable& table, Evaluator& evaluator) {
  Plan plan = empty_plan(table.space());
  const std::vector<std::size_t>& kinds = kinds_of(table.space(), plan.structure);
  const std::array<Placement, kModelRoles> pool = pools(table, kinds);
  for (std::size_t v = 0; v < kinds.size(); ++v) {
    const auto role = static_cast<std::size_t>(table.space().kinds[kinds[v]].model);
    plan.vertices[v] = fastest_on(table, kinds[v], pool[role]);
  }
  return relieve_memory(table, evaluator, std::move(plan));
}

}  // namespace search

Plan greedy_plan(const WorkloadConfig& config, const HardwareProfile& profile) {
  const search::Space space = search::plain_space(config);
  search::SubPlanTable table(space, profile);
  search::Evaluator evaluator(config, profile);
  return search::greedy(table, evaluator);
}

Plan concurrent_plan(const WorkloadConfig& config, const HardwareProfile& profile) {
  const search::Space space = search::plain_space(config);
  search::SubPlanTable table(space, profile);
  search::Evaluator evaluator(config, profile);
  return search::concurrent(table, evaluator);
}

}  // namespace rpeg
