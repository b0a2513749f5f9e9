#include <algorithm>
#include <limits>
#include <optional>

#include "rpeg/base/error.h"
#include "rpeg/search/baseline.h"
#include "search/baselines.h"

namespace rpeg {
namespace {

using search::Evaluator;
using search::Score;
using search::Space;
using search::SubPlan;
using search::SubPlanTable;

constexpr int kMostDivisions = 64;

[[noreturn]] void fail(const std::string& name, const std::string& why) {
  throw Error(ErrorKind::kInfeasible, "baseline " + name + ": " + why);
}

/// The better of two plans: what fits first, then the shorter period; of two that do not fit the
/// one that overflows less.
struct Best {
  std::optional<Plan> plan;
  Score score;

  void offer(const Plan& other, Evaluator& evaluator) {
    const Score theirs = evaluator.score(other);
    const bool better = theirs.overflow == score.overflow ? theirs.period_s < score.period_s
                                                          : theirs.overflow < score.overflow;
    if (plan && !better) return;
    plan = other;
    score = theirs;
  }
};

/// The fastest number of micro-batches for a split, or with `smallest` the largest number: that of
/// least activations. Nothing when the split is not valid for the vertex.
std::optional<VertexPlan> with_split(SubPlanTable& table,
                                     std::size_t kind,
                                     const Placement& block,
                                     const Parallelism& split,
                                     bool smallest) {
  std::optional<VertexPlan> best;
  double least = std::numeric_limits<double>::infinity();
  for (const SubPlan& choice : table.of(kind, block).all) {
    if (choice.parallelism != split) continue;
    const VertexPlan plan = search::place(choice, block);
    const search::Alone alone = table.alone(kind, plan);
    const double cost = smallest || !alone.fits ? alone.bytes * 1e3 : alone.time_s;
    if (best && cost >= least) continue;
    least = cost;
    best = plan;
  }
  return best;
}

/// One split for all vertices; nothing where a vertex cannot have it.
std::optional<Plan> uniform(SubPlanTable& table,
                            const Placement& block,
                            const Parallelism& split,
                            bool smallest) {
  Plan plan = search::empty_plan(table.space());
  const std::vector<std::size_t>& kinds = kinds_of(table.space(), plan.structure);
  for (std::size_t v = 0; v < kinds.size(); ++v) {
    const auto mine = with_split(table, kinds[v], block, split, smallest);
    if (!mine) return std::nullopt;
    plan.vertices[v] = *mine;
  }
  return plan;
}

void offer_uniform(SubPlanTable& table,
                   Evaluator& evaluator,
                   const Placement& block,
                   const Parallelism& split,
                   Best& best) {
  for (const bool smallest : {false, true}) {
    if (const auto plan = uniform(table, block, split, smallest)) best.offer(*plan, evaluator);
  }
}

Plan colocated_uniform(SubPlanTable& table, Evaluator& evaluator, const std::string& name) {
  const Placement block = search::usable_block(table.config().hardware);
  Best best;
  const Parallelism* last = nullptr;
  for (const SubPlan& choice : table.of(0, block).all) {
    if (last != nullptr && *last == choice.parallelism) continue;
    last = &choice.parallelism;
    offer_uniform(table, evaluator, block, choice.parallelism, best);
  }
  if (!best.plan)
    fail(name, "no (dp, pp, tp) on " + placement_text(block) + " is valid for all vertices");
  return *best.plan;
}

Plan real_heuristic(SubPlanTable& table, Evaluator& evaluator, const std::string& name) {
  const Placement block = search::usable_block(table.config().hardware);
  const Parallelism split{1, block.racks.count() * block.nodes.count(), block.gpus.count()};
  Best best;
  offer_uniform(table, evaluator, block, split, best);
  if (!best.plan) {
    fail(name,
         "tp = " + std::to_string(split.tp) + " (a node) and pp = " + std::to_string(split.pp) +
             " (the nodes) is not valid for every model");
  }
  return *best.plan;
}

Plan split_async(SubPlanTable& table, Evaluator& evaluator, const std::string& name) {
  const Placement block = search::usable_block(table.config().hardware);
  Plan plan = search::empty_plan(table.space());
  const std::vector<std::size_t>& kinds = kinds_of(table.space(), plan.structure);
  if (table.space().kinds[kinds[0]].op != Op::kGenerate) fail(name, "the job generates nothing");
  const bool by_rack = block.racks.count() > 1;
  const bool by_node = block.nodes.count() > 1;
  const auto axis = by_rack ? &Placement::racks : by_node ? &Placement::nodes : &Placement::gpus;
  const Range whole = block.*axis;
  if (whole.count() < 2) fail(name, "one GPU cannot be divided into two pools");
  const int step = (whole.count() + kMostDivisions - 1) / kMostDivisions;
  Best best;
  for (int first = whole.first + step; first <= whole.last; first += step) {
    Placement generating = block;
    Placement training = block;
    (generating.*axis).last = first - 1;
    (training.*axis).first = first;
    for (std::size_t v = 0; v < kinds.size(); ++v) {
      plan.vertices[v] = search::fastest_on(table, kinds[v], v == 0 ? generating : training);
    }
    plan.structure.tau_actor = 1;
    best.offer(search::relieve_memory(table, evaluator, plan), evaluator);
  }
  return *best.plan;
}

}  // namespace

const std::vector<std::string>& plan_names() {
  static const std::vector<std::string> names{
      "greedy", "concurrent", "colocated-uniform", "split-async", "real-heuristic"};
  return names;
}

Plan named_plan(const std::string& name,
                const WorkloadConfig& config,
                const HardwareProfile& profile) {
  if (name == "greedy") return greedy_plan(config, profile);
  if (name == "concurrent") return concurrent_plan(config, profile);
  const Space space = search::plain_space(config);
  SubPlanTable table(space, profile);
  Evaluator evaluator(config, profile);
  if (name == "colocated-uniform") return colocated_uniform(table, evaluator, name);
  if (name == "split-async") return split_async(table, evaluator, name);
  if (name == "real-heuristic") return real_heuristic(table, evaluator, name);
  std::string known;
  for (const std::string& each : plan_names()) known += (known.empty() ? "" : ", ") + each;
  throw Error(ErrorKind::kUsage, "there is no baseline `" + name + "`; there are " + known);
}

}  // namespace rpeg
