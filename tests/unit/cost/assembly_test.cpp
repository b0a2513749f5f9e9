#include "rpeg/cost/assembly.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "rpeg/base/rng.h"
#include "rpeg/plan/cells.h"
#include "support/random_plan.h"
#include "unit/cost/example.h"

namespace rpeg {
namespace {

using testing::ElementsAre;

TEST(FindAtoms, MergesTheCellsOfRandomBlocks) {
  Rng rng(31);
  for (int i = 0; i < 2000; ++i) {
    const int racks = test::random_int(1, 5, rng);
    const int nodes = rng.below(2) == 0 ? 64 : 200;  // with and without the short way
    Plan plan;
    std::vector<Placement> placements;
    const std::int64_t vertices = 1 + rng.below(8);
    for (std::int64_t v = 0; v < vertices; ++v) {
      VertexPlan vertex;
      vertex.placement = {test::random_range(racks, rng),
                          test::random_range(nodes, rng),
                          test::random_range(8, rng)};
      if (v > 0 && rng.below(3) == 0) vertex = plan.vertices.front();
      plan.vertices.push_back(vertex);
      placements.push_back(vertex.placement);
    }
    BlockAtoms atoms;
    find_atoms(plan, &atoms);
    std::map<std::uint32_t, double> expected;  // by set of vertices
    for (const PlacementCell& cell : cut_into_cells(placements)) {
      expected[cell.users] += cell.box.gpu_count();
    }
    std::map<std::uint32_t, double> found;
    for (std::size_t a = 0; a < atoms.count; ++a) {
      std::uint32_t users = 0;
      for (std::size_t v = 0; v < placements.size(); ++v) {
        if ((atoms.users[a] >> atoms.block_of[v] & 1U) != 0) users |= 1U << v;
      }
      found[users] += atoms.gpus[a];
    }
    ASSERT_EQ(found, expected) << "plan " << i;
    ASSERT_EQ(atoms.active_gpus, static_cast<double>(active_gpu_count(plan)));
  }
}

VertexPlan on_node(int node, Parallelism parallelism) {
  return {parallelism, 1, {{0, 0}, {node, node}, {0, 3}}};
}

/// PPO with lengths of two inner points.
WorkloadConfig cut_config() {
  WorkloadConfig config = example_config();
  config.workload.gen_quantiles = {{0.5, 20.0}, {0.75, 30.0}, {1.0, 64.0}};
  config.workload.generation_length = 64;
  return config;
}

PricedPlan price(const Plan& plan, const WorkloadConfig& config, const HardwareProfile& profile) {
  return price_plan(plan, build_graph(config.policy, plan.structure), config, profile);
}

TEST(CutPlan, RunsStagesAndChunks) {
  const WorkloadConfig config = cut_config();
  const VertexPlan a = on_node(0, {4, 1, 1});
  const PricedPlan priced = price({{.cuts = 0b10}, {a, a, a, a, a, a}}, config, example_profile());
  std::vector<std::string> names;
  std::vector<std::int32_t> vertices;
  for (const TimedTask& task : priced.tasks.tasks) {
    names.push_back(task.name);
    vertices.push_back(task.vertex);
  }
  EXPECT_THAT(names,
              ElementsAre("g_pi.1",
                          "g_pi.2",
                          "i_R.1",
                          "i_R.2",
                          "i_V.1",
                          "i_V.2",
                          "i_ref.1",
                          "i_ref.2",
                          "t_V",
                          "t_pi"));
  EXPECT_THAT(vertices, ElementsAre(0, 0, 1, 1, 2, 2, 3, 3, 4, 5));
  EXPECT_EQ(priced.memory.size(), 6U);
}

TEST(CutPlan, SendsEachChunkItsShareOfTheSequences) {
  const WorkloadConfig config = cut_config();
  const HardwareProfile profile = example_profile();
  const VertexPlan a = on_node(0, {4, 1, 1});
  const VertexPlan b = on_node(1, {4, 1, 1});
  const auto arrival_s = [&](std::size_t task) {
    const PricedPlan together = price({{.cuts = 0b10}, {a, a, a, a, a, a}}, config, profile);
    const PricedPlan apart = price({{.cuts = 0b10}, {a, b, a, a, a, a}}, config, profile);
    return apart.tasks.tasks[task].time.total_s - together.tasks.tasks[task].time.total_s;
  };
  const double bytes = static_cast<double>(config.workload.sequences()) * 4.0 *
                       (static_cast<double>(config.workload.context_length) +
                        2.0 * expected_length(config.workload)) /
                       4;  // per replica
  const AlphaBeta& wire = profile.point_to_point[1];
  EXPECT_NEAR(arrival_s(2), wire.alpha_s + 0.75 * bytes * wire.beta_s_per_byte, 1e-12);
  EXPECT_NEAR(arrival_s(3), wire.alpha_s + 0.25 * bytes * wire.beta_s_per_byte, 1e-12);
}

TEST(KvSlots, AreWhatTheOtherResidentsLeave) {
  const WorkloadConfig config = cut_config();
  HardwareProfile profile = example_profile();
  const VertexPlan a = on_node(0, {4, 1, 1});
  const Plan plan{{}, {a, a, a, a, a, a}};
  profile.memory_per_gpu = 1e15;
  const PricedPlan roomy = price(plan, config, profile);
  EXPECT_EQ(roomy.generation_slots, replica_batch(a, config));
  // The limit that leaves three and a half slots beside weights, optimizer and working memory.
  double resident = 0.0;
  resident = roomy.memory[0].weights + roomy.memory[0].optimizer + profile.reserve_bytes;
  const Graph graph = build_graph(config.policy, {});
  const MemoryUse alone =
      part_memory(graph.vertices[0], a, whole_response(config.workload), 0, config, profile);
  const double working = alone.activations + alone.logits;
  profile.memory_per_gpu = resident + working + 3.5 * kv_slot_bytes(a, config);
  EXPECT_EQ(price(plan, config, profile).generation_slots, 3);
  // At least one for each micro-batch, charged as overflow.
  profile.memory_per_gpu = resident + working;
  const PricedPlan full = price(plan, config, profile);
  EXPECT_EQ(full.generation_slots, 1);
  EXPECT_GT(full.overflow, 0.0);
}

TEST(Versions, AreOneMoreThanTheStaleness) {
  WorkloadConfig config = example_config();
  config.policy.algorithm = Algorithm::kGrpo;
  config.policy.reward = RewardSource::kVerifier;
  config.policy.kl_reference = false;
  const VertexPlan a = on_node(0, {4, 1, 1});
  const double one = price({{}, {a, a}}, config, example_profile()).memory[0].weights;
  for (const std::int64_t tau : {1, 2, 3}) {  // the reader's 1 + τ, and the trainer's own
    EXPECT_DOUBLE_EQ(
        price({{.tau_actor = tau}, {a, a}}, config, example_profile()).memory[0].weights,
        one * static_cast<double>(2 + tau));
  }
}

TEST(SharedTrunk, IsOneCopyWhereTheLayoutIsTheSame) {
  const WorkloadConfig config = cut_config();
  const VertexPlan a = on_node(0, {4, 1, 1});
  VertexPlan far = on_node(1, {4, 1, 1});
  // g_pi, i_R, i_V, i_ref, t_piV: reward and reference elsewhere.
  const auto weights = [&](std::int64_t tau) {
    return price({{.tau_actor = tau, .tau_critic = tau, .ac_share = true}, {a, far, a, far, a}},
                 config,
                 example_profile())
        .memory[0]
        .weights;
  };
  const double one = weights(0);
  EXPECT_NEAR(
      one / (2.0 * static_cast<double>(parameter_count(config.model(ModelRole::kActor), false))),
      1.0,
      1e-3);
  // g_pi and i_V read the same versions, t_piV has its own; the scalar head is lost in the margin.
  EXPECT_NEAR(weights(1) / (3.0 * one), 1.0, 1e-6);
}

}  // namespace
}  // namespace rpeg
