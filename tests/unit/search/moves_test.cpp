#include "search/moves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "search/baselines.h"
#include "search/chain.h"
#include "search/plan_key.h"
#include "support/planning.h"

namespace rpeg {
namespace {

using search::Mover;
using search::Workbench;

struct Walk {
  std::set<Structure> structures;
  int moved = 0;
  Plan last;
};

/// Whether every vertex has one of the sub-plans for which the bound of the space holds.
bool is_of_table(search::SubPlanTable& table, const Plan& plan) {
  const std::vector<std::size_t>& kinds = search::kinds_of(table.space(), plan.structure);
  for (std::size_t v = 0; v < kinds.size(); ++v) {
    const VertexPlan& mine = plan.vertices[v];
    const bool known = std::ranges::any_of(
        table.of(kinds[v], mine.placement).all,
        [&](const auto& sub_plan) { return search::place(sub_plan, mine.placement) == mine; });
    if (!known) return false;
  }
  return true;
}

/// Walks at random and checks every plan on the way.
Walk walk(const WorkloadConfig& config, int steps, const std::vector<Pin>& pins = {}) {
  const HardwareProfile profile = test::small_hardware();
  const search::Space space = search::build_space(config, pins);
  Workbench bench(space, profile);
  Mover mover(bench.table);
  Rng rng(23);
  Walk result;
  Plan plan = search::greedy(bench.table, bench.evaluator);
  Plan next;
  for (int i = 0; i < steps; ++i) {
    const auto focus =
        static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(plan.vertices.size())));
    if (!mover.draw(plan, focus, rng, next)) continue;
    ++result.moved;
    EXPECT_NE(next, plan);
    const Graph graph = build_graph(config.policy, next.structure);
    for (const Violation& violation : find_violations(next, graph, config)) {
      ADD_FAILURE() << violation.vertex << ": " << violation.message;
      return result;
    }
    EXPECT_TRUE(search::has_structure(space, next.structure));
    EXPECT_TRUE(search::keeps_pins(space, next));
    EXPECT_TRUE(is_of_table(bench.table, next));
    plan = next;
    result.structures.insert(plan.structure);
  }
  EXPECT_GT(result.moved, steps / 20);
  result.last = plan;
  return result;
}

TEST(Mover, DrawsOnlyValidPlans) {
  walk(test::small_ppo(2, 3, 4), 2000);
  walk(test::small_grpo(2), 500);
  // The largest numbers of micro-batches are no powers of two, and differ between vertices.
  WorkloadConfig odd = test::small_ppo(2, 3, 4);
  odd.workload.batch_size = 33;
  odd.policy.minibatches = 3;
  walk(odd, 2000);
}

TEST(Mover, RespectsTheLimitsOfTheConfiguration) {
  WorkloadConfig config = test::small_ppo(2, 3, 4);
  config.optimizer.max_tp = 2;
  config.optimizer.max_pp = 1;
  config.hardware.max_gpus = 10;
  walk(config, 2000);
}

TEST(Mover, StaysAtTheStalenessCandidates) {
  WorkloadConfig config = test::small_ppo(1, 1, 2);
  config.optimizer.staleness_actor = {1, 3};
  config.optimizer.staleness_critic = {2};
  const std::set<Structure> seen = walk(config, 500).structures;
  EXPECT_EQ(seen, (std::set<Structure>{{1, 2, false, 0}, {3, 2, false, 0}}));
}

TEST(Mover, TakesEveryStructure) {
  WorkloadConfig config = test::small_ppo(1, 1, 4);
  config.optimizer.staleness_actor = {0, 1};
  config.optimizer.staleness_critic = {0};
  config.policy.allow_ac_share = true;
  config.workload.gen_quantiles = {{0.5, 8.0}, {0.8, 16.0}, {1.0, 32.0}};
  const std::set<Structure> seen = walk(config, 4000).structures;
  // Two taus × (apart, shared with tau_critic = tau_actor) × four subsets of the two cuts.
  EXPECT_EQ(seen.size(), 16U);
  const search::Space space = search::build_space(config, {});
  const auto all = search::all_structures(space);
  EXPECT_EQ(seen, std::set<Structure>(all.begin(), all.end()));
}

TEST(Mover, DrawsNoStalenessForOfflineDpo) {
  WorkloadConfig config = test::small_grpo(2);
  config.policy.algorithm = Algorithm::kDpo;
  config.policy.dpo_mode = DpoMode::kOffline;
  config.policy.reward = RewardSource::kModel;
  config.workload.samples_per_prompt = 1;
  config.workload.gen_quantiles = {{0.5, 8.0}, {1.0, 32.0}};
  config.optimizer.staleness_actor = {1, 2};
  EXPECT_EQ(walk(config, 500).structures, std::set<Structure>{Structure{}});
}

TEST(Mover, KeepsPins) {
  WorkloadConfig config = test::small_ppo(1, 2, 4);
  const Walk walked = walk(config,
                           2000,
                           {parse_pin("g_pi=2,1,2"),
                            parse_pin("t_pi=r0 n[0-1] g[0-1]/m2"),
                            parse_pin("i_R=1,1,4/m1/r0 n[1-1] g[0-3]")});
  EXPECT_EQ(walked.last.vertices[0].parallelism, (Parallelism{2, 1, 2}));
}

TEST(Mover, APinOfTheJointTrainingSharesAlways) {
  WorkloadConfig config = test::small_ppo(1, 1, 4);
  config.policy.allow_ac_share = true;
  for (const Structure& structure : walk(config, 500, {parse_pin("t_piV=m2")}).structures) {
    EXPECT_TRUE(structure.ac_share);
  }
  for (const Structure& structure : walk(config, 500, {parse_pin("t_pi=m2")}).structures) {
    EXPECT_FALSE(structure.ac_share);
  }
}

TEST(Mover, FindsNoNeighbourWhereThereIsOnePlan) {
  WorkloadConfig config = test::small_grpo(1);
  config.workload.batch_size = 1;
  config.workload.samples_per_prompt = 1;
  const HardwareProfile profile = test::small_hardware();
  const search::Space space = search::build_space(config, {});
  Workbench bench(space, profile);
  Mover mover(bench.table);
  Rng rng(31);
  const Plan plan = search::greedy(bench.table, bench.evaluator);
  Plan next;
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(mover.draw(plan, 0, rng, next));
}

/// Compares the table with the rules of plans for some numbers of micro-batches.
void check_sub_plans(search::SubPlanTable& table,
                     std::size_t kind,
                     const Placement& block,
                     const Parallelism& split) {
  const Vertex& vertex = table.space().kinds[kind];
  const auto& all = table.of(kind, block).all;
  for (const std::int64_t m : {1, 2, 3, 16}) {
    const Graph alone{{vertex}, {}};
    const Plan plan{{}, {{split, m, block}}};
    const bool valid = find_violations(plan, alone, table.config()).empty();
    EXPECT_EQ(table.is_valid(kind, block, split, m), valid);
    const bool listed = std::ranges::find(all, search::SubPlan{split, m}) != all.end();
    EXPECT_TRUE(valid || !listed);
    const bool useful = m <= 2 && (vertex.op != Op::kGenerate || split.pp > 1 || m == 1);
    EXPECT_TRUE(listed || !valid || !useful);
  }
}

TEST(SubPlanTable, HoldsExactlyTheValidSubPlans) {
  WorkloadConfig config = test::small_ppo(1, 3, 4);
  config.policy.minibatches = 2;
  const HardwareProfile profile = test::small_hardware();
  const search::Space space = search::build_space(config, {});
  search::SubPlanTable table(space, profile);
  for (std::size_t kind = 0; kind < space.kinds.size(); ++kind) {
    for (int nodes = 1; nodes <= 3; ++nodes) {
      for (int gpus = 1; gpus <= 4; ++gpus) {
        const Placement block{{0, 0}, {0, nodes - 1}, {0, gpus - 1}};
        for (int tp = 1; tp <= 5; ++tp) {
          for (int pp = 1; pp <= 5; ++pp) {
            for (int dp = 1; dp <= 17; ++dp) {
              check_sub_plans(table, kind, block, {dp, pp, tp});
            }
          }
        }
      }
    }
  }
}

TEST(Mover, KeepsEveryRuleOfCutAndSharedPlans) {
  WorkloadConfig config = test::small_ppo(1, 2, 4);
  config.policy.allow_ac_share = true;
  config.optimizer.staleness_actor = {0, 1};
  config.workload.gen_quantiles = {{0.5, 8.0}, {0.8, 20.0}, {1.0, 32.0}};  // 8, 5 and 3 of 16
  const HardwareProfile profile = test::small_hardware();
  const search::Space space = search::build_space(config, {});
  Workbench bench(space, profile);
  Mover mover(bench.table);
  Rng rng(41);
  Plan plan = search::greedy(bench.table, bench.evaluator);
  Plan next;
  int cut = 0;
  int shared = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto focus =
        static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(plan.vertices.size())));
    if (!mover.draw(plan, focus, rng, next)) continue;
    plan = next;
    cut += plan.structure.cuts != 0;
    shared += plan.structure.ac_share;
    const Graph graph = build_graph(config.policy, plan.structure);
    ASSERT_TRUE(find_violations(plan, graph, config).empty())
        << find_violations(plan, graph, config).front().message;
  }
  EXPECT_GT(cut, 100);
  EXPECT_GT(shared, 100);
}

TEST(PlanKey, DiffersWhereverPlansDiffer) {
  WorkloadConfig config = test::small_ppo(2, 3, 4);
  config.policy.allow_ac_share = true;
  config.optimizer.staleness_actor = {0, 1};
  config.workload.gen_quantiles = {{0.5, 8.0}, {1.0, 32.0}};
  const HardwareProfile profile = test::small_hardware();
  const search::Space space = search::build_space(config, {});
  Workbench bench(space, profile);
  Mover mover(bench.table);
  Rng rng(37);
  Plan plan = search::greedy(bench.table, bench.evaluator);
  Plan next;
  std::map<decltype(search::PlanKey::words), Plan> seen;
  for (int i = 0; i < 2000; ++i) {
    if (mover.draw(plan, static_cast<std::size_t>(rng.below(5)), rng, next)) plan = next;
    const auto [place, is_new] = seen.try_emplace(search::plan_key(plan).words, plan);
    ASSERT_EQ(place->second, plan);
  }
}

TEST(ScoreCache, FindsWhatWasPutThere) {
  search::ScoreCache cache(4);
  Plan plan;
  plan.vertices.resize(3);
  bool hit = true;
  cache.at(search::plan_key(plan), hit).period_s = 7.0;
  EXPECT_FALSE(hit);
  EXPECT_EQ(cache.at(search::plan_key(plan), hit).period_s, 7.0);
  EXPECT_TRUE(hit);
  plan.vertices[1].micro_batches = 2;
  cache.at(search::plan_key(plan), hit);
  EXPECT_FALSE(hit);
}

}  // namespace
}  // namespace rpeg
