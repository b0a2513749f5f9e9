#include <gtest/gtest.h>

#include <cmath>

#include "cost/network.h"
#include "cost/pipeline.h"
#include "cost/reshard.h"
#include "cost/shard.h"
#include "cost/vertex_rates.h"
#include "unit/cost/example.h"

// Mistakes found in published planners and cost models, one test or more for each. A search that
// compares a proposal with the best state instead of the current one, or that looks at the clock
// only when it accepts, is for the tests of the search.

namespace rpeg {
namespace {

double total_s(const Vertex& vertex,
               const VertexPlan& plan,
               const WorkloadConfig& config,
               const HardwareProfile& profile = example_profile()) {
  return price_vertex(vertex, plan, config, profile).total_s;
}

VertexPlan on_node(int node, Parallelism parallelism) {
  return {parallelism, 1, {{0, 0}, {node, node}, {0, 3}}};
}

PricedPlan price(const WorkloadConfig& config, const Plan& plan) {
  return price_plan(plan, build_graph(config.policy, plan.structure), config, example_profile());
}

/// Everything free but one kind of work.
HardwareProfile free_profile() {
  HardwareProfile profile;
  profile.flops_per_gpu = 1e40;
  profile.memory_per_gpu = 1e12;
  profile.memory_bandwidth = 1e40;
  profile.decode_bw_eff = 1.0;
  return profile;
}

TEST(Trap01Units, ASecondIsASecondInVerticesAndTransfers) {
  const WorkloadConfig config = two_vertices();
  const double parameters = static_cast<double>(parameter_count(llama_2_7b(), false));
  // 1 TFLOP/s is 10¹² FLOP/s, not 2⁴⁰: training without attention, 6 FLOP a parameter and token.
  HardwareProfile profile = free_profile();
  profile.flops_per_gpu = 1e12;
  profile.attention_eff = 1e30;
  const double tokens = 64 * (128 + expected_length(config.workload));
  const double linear = 6.0 * tokens * 32 * layer_matrix_elements(llama_2_7b(), 1);
  const double head = 6.0 * 64 * expected_length(config.workload) * 4096 * 32000;
  const VertexPlan one = plan_on(1, 1, {1, 1, 1});
  EXPECT_NEAR(total_s(actor_training(), one, config, profile) / ((linear + head) / 1e12), 1, 1e-9);
  // 1 GB/s is 10⁹ bytes/s: the weights of bf16 over the wire.
  profile = free_profile();
  profile.point_to_point[1].beta_s_per_byte = 1e-9;
  const TimedTask transfer = price_transfer(
      actor_training(), on_node(0, {1, 1, 4}), on_node(1, {1, 1, 4}), config, profile);
  EXPECT_NEAR(transfer.time.total_s / (parameters * 2.0 / 1e9), 1.0, 1e-6);
  // The simulator sees both in the same unit.
  EXPECT_EQ(transfer.time.total_s, transfer.time.comm_s);
}

TEST(Trap02RingBytes, CountTheFullBufferOnceEachWay) {
  const HardwareProfile profile = example_profile();
  const std::vector<GroupShape> groups{{.size = 4, .per_node = 4}};
  // An all-reduce is a reduce-scatter and an all-gather of the same full buffer, not of shards.
  const double n = 1e9;
  const double all_reduce = n * all_reduce_cost(groups, profile, n).beta_s_per_byte;
  const double all_gather = n * all_gather_cost(groups, profile, n).beta_s_per_byte;
  EXPECT_DOUBLE_EQ(all_reduce, 2.0 * all_gather);
  // Bus bandwidth n/t · 2(p − 1)/p is the rate of the wire, one way; n/t itself is not.
  EXPECT_DOUBLE_EQ(n / all_reduce * 2 * 3 / 4.0, 1.0 / 1e-11);
}

TEST(Trap03Reallocation, CostsAlthoughStrategiesAreEqual) {
  const WorkloadConfig config = two_vertices();
  const VertexPlan here = on_node(0, {4, 1, 1});
  // Equal strategies on different blocks are a transfer; only the same layout on the same GPUs is
  // none.
  EXPECT_EQ(price(config, {{}, {here, on_node(1, {4, 1, 1})}}).tasks.tasks.size(), 3U);
  EXPECT_EQ(price(config, {{}, {here, here}}).tasks.tasks.size(), 2U);
  // No pair of layouts is missing from any table.
  const std::vector<Parallelism> layouts{{4, 1, 1}, {1, 4, 1}, {1, 1, 4}, {2, 2, 1}, {1, 2, 2}};
  const auto transfer = [&](const VertexPlan& from, const VertexPlan& to) {
    return price_transfer(actor_training(), from, to, config, example_profile());
  };
  for (const Parallelism& from : layouts) {
    for (const Parallelism& to : layouts) {
      const TimedTask task = transfer(on_node(0, from), on_node(1, to));
      EXPECT_GT(task.time.total_s, 0.0);
      EXPECT_GT(task.bytes, 0.0);
    }
  }
  // On the same GPUs only what a GPU lacks moves.
  EXPECT_EQ(transfer(here, on_node(0, {1, 1, 4})).bytes, 0.0);
  EXPECT_GT(transfer(on_node(0, {1, 1, 4}), here).bytes, 0.0);
}

TEST(Trap04KvHeads, AreReplicatedNotDividedBeyondTheirNumber) {
  // Llama-2-70B has 64 query heads and 8 KV heads.
  const ModelSpec model = llama_2_70b();
  WorkloadConfig config = example_config();
  config.models.fill(model);
  EXPECT_EQ(local_kv_heads(model, 16), 1.0);
  EXPECT_EQ(local_kv_heads(model, 64), 1.0);
  const auto slot = [&](int tp) { return kv_slot_bytes(plan_on(1, tp, {1, 1, tp}), config); };
  EXPECT_EQ(slot(8), slot(16));
  EXPECT_EQ(slot(1), 8 * slot(8));
  // Attention in memory is 2·h·a·d + 2·h·n_kv·d, not 4h².
  const double attention = layer_matrix_elements(model, 1) - 3.0 * 8192 * 28672;
  EXPECT_EQ(attention, 2.0 * 8192 * 8192 + 2.0 * 8192 * 1024);
  // A decode step reads n_kv heads, not a.
  const VertexRates rates =
      vertex_rates(generation(), plan_on(1, 1, {1, 1, 1}), config, example_profile(), 1.0);
  EXPECT_DOUBLE_EQ(rates.kv_token_s, 2.0 * 8 * 128 * 2 / (0.6 * 2e12));
}

TEST(Trap05Tiers, AreThoseOfTheMembersNotOfTheSize) {
  const HardwareProfile profile = example_profile();
  // A group of four in one node, across two, and misaligned on nodes of three.
  const auto slowest = [&](const VertexPlan& plan) {
    Tier tier = Tier::kNode;
    for (const GroupShape& group : group_shapes(plan, GroupAxis::kTensor)) {
      tier = std::max(tier, group.slowest);
    }
    return tier;
  };
  EXPECT_EQ(slowest(plan_on(1, 4, {1, 1, 4})), Tier::kNode);
  EXPECT_EQ(slowest(plan_on(2, 2, {1, 1, 4})), Tier::kRack);
  EXPECT_EQ(slowest(plan_on(4, 3, {3, 1, 4})), Tier::kRack);
  EXPECT_EQ(slowest({{1, 1, 8}, 1, {{0, 1}, {0, 0}, {0, 3}}}), Tier::kCluster);
  // A ring is as fast as its slowest link.
  const WorkloadConfig config = example_config();
  const double inside = price_vertex(reference(), plan_on(1, 4, {1, 1, 4}), config, profile).comm_s;
  const double across = price_vertex(reference(), plan_on(4, 1, {1, 1, 4}), config, profile).comm_s;
  EXPECT_GT(across, 5 * inside);
}

TEST(Trap06Batches, SyncAndBubbleComeOncePerMiniBatch) {
  WorkloadConfig config = example_config();
  // Gradients are reduced once a mini-batch, whatever the micro-batches.
  const VertexPlan dp = plan_on(1, 4, {4, 1, 1});
  const auto comm_s = [&](std::int64_t m) {
    VertexPlan plan = dp;
    plan.micro_batches = m;
    return price_vertex(critic_training(), plan, config, example_profile()).comm_s;
  };
  EXPECT_DOUBLE_EQ(comm_s(8), comm_s(1));
  const double once = comm_s(1);
  config.policy.minibatches = 4;
  config.policy.epochs = 2;
  EXPECT_NEAR(comm_s(1) / once, 8.0, 1e-9);
  // So does the bubble: four mini-batches of four micro-batches have four times that of one.
  HardwareProfile profile = example_profile();
  profile.gemm_m_half = 0.0;
  const auto bubble_s = [&](std::int64_t minibatches) {
    config.policy.minibatches = minibatches;
    config.policy.epochs = 1;
    return price_vertex(critic_training(), plan_on(1, 4, {1, 4, 1}, 4), config, profile).bubble_s;
  };
  EXPECT_NEAR(4 * bubble_s(4) / bubble_s(1), 4.0, 0.05);
}

TEST(Trap06Batches, MayBeFewerThanStagesAndNeedNotDivide) {
  WorkloadConfig config = example_config();
  // One micro-batch on four stages: three quarters of the time are bubble.
  const VertexPlan plan = plan_on(1, 4, {1, 4, 1}, 1);
  const TaskTime time = price_vertex(critic_training(), plan, config, example_profile());
  EXPECT_NEAR(time.bubble_s / (time.bubble_s + time.compute_s), 0.75, 0.02);
  // 65 sequences on 4 replicas: one has 17, as of 68.
  const VertexPlan dp = plan_on(1, 4, {4, 1, 1});
  config.workload.batch_size = 65;
  const double uneven = total_s(reference(), dp, config);
  config.workload.batch_size = 68;
  EXPECT_EQ(uneven, total_s(reference(), dp, config));
  config.workload.batch_size = 64;
  EXPECT_LT(total_s(reference(), dp, config), uneven);
}

TEST(Trap07Flop, AreNotCountedForTheEmbedding) {
  WorkloadConfig config = example_config();
  // The critic has the table but no vocabulary head: its FLOPs do not know V.
  const double small = vertex_model_flop(critic_training(), config);
  config.models[1]->vocab_size *= 4;
  EXPECT_EQ(vertex_model_flop(critic_training(), config), small);
  EXPECT_EQ(total_s(value(), plan_on(1, 1, {1, 1, 1}), config),
            total_s(value(), plan_on(1, 1, {1, 1, 1}), example_config()));
}

TEST(Trap07Flop, GiveTheHeadToTheLastStageOnly) {
  WorkloadConfig config = example_config();
  const auto elements = [&](Head head, int stage) {
    return stage_elements(llama_2_7b(), head, {1, 4, 1}, stage);
  };
  for (const int stage : {0, 1, 2}) {
    EXPECT_EQ(elements(Head::kLanguageModel, stage), elements(Head::kScalar, stage));
  }
  EXPECT_EQ(elements(Head::kLanguageModel, 3) - elements(Head::kScalar, 3), 4096.0 * 31999);
  // With four micro-batches it is passed four times on one stage, not on four.
  HardwareProfile profile = free_profile();
  profile.vector_eff = 1e-40;
  profile.memory_bandwidth = 1e9 * 1e40;  // logits alone take time: 1e9 bytes/s
  profile.decode_bw_eff = 1e40;
  const VertexPlan plan = plan_on(1, 4, {1, 4, 1}, 4);
  const double logits = 12.0 * 32000 * 64 * expected_length(config.workload) / 1e9;
  EXPECT_NEAR(total_s(reference(), plan, config, profile) / logits, 1.0, 1e-6);
}

TEST(Trap07Flop, AreCausalInAttention) {
  // s(s + 1)/2 pairs, not s².
  WorkloadConfig config = example_config();
  config.workload.batch_size = 1;
  config.workload.context_length = 1000;
  config.workload.generation_length = 1000;
  config.workload.gen_quantiles.clear();
  const double linear =
      2.0 * 2000 * 32 * layer_matrix_elements(llama_2_7b(), 1) + 2.0 * 1000 * 4096;
  const double attention = vertex_model_flop(value(), config) - linear;
  EXPECT_NEAR(attention / (4.0 * 4096 * 32 * 2000 * 2001 / 2), 1.0, 1e-9);
}

TEST(Trap08Recomputation, TakesTimeAsWellAsMemory) {
  WorkloadConfig config = example_config();
  HardwareProfile profile = free_profile();
  profile.flops_per_gpu = 1e15;
  profile.attention_eff = 1e25;
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1});
  const double none = total_s(critic_training(), plan, config, profile);
  config.optimizer.recompute = Recompute::kFull;
  // Four forwards in place of three.
  EXPECT_NEAR(total_s(critic_training(), plan, config, profile) / none, 4.0 / 3.0, 1e-4);
  // Model FLOPs stay three.
  EXPECT_EQ(vertex_model_flop(critic_training(), config), 3.0 * vertex_model_flop(value(), config));
}

TEST(Trap08Recomputation, KeepsFewerMicroBatchesOnLaterStages) {
  // 1F1B keeps min(m, pp − i) micro-batches: the first of four stages has four of a quarter of the
  // layers, as much as one stage that holds all layers, never pp times as much.
  const WorkloadConfig config = example_config();
  const auto activations = [&](int pp, std::int64_t m) {
    return vertex_memory(
               critic_training(), plan_on(1, pp, {1, pp, 1}, m), config, example_profile())
        .activations;
  };
  EXPECT_DOUBLE_EQ(activations(4, 64), activations(1, 64));
  EXPECT_DOUBLE_EQ(activations(4, 2), 2 * activations(1, 2) / 4);
}

TEST(Trap09Decode, TakesTheSlowerOfReadingAndComputing) {
  // γ contains the reading of weights at middle sizes: the two are not added.
  const GemmTime gemm{.floor_s = 3.0, .row_s = 0.01, .half_rows = 100.0};
  EXPECT_EQ(gemm.at(1.0), 3.0);
  EXPECT_EQ(gemm.at(400.0), 5.0);
  EXPECT_EQ(gemm.at(gemm.switch_rows()), 3.0);
}

TEST(Trap09Decode, ReadsThePromptFromTheCache) {
  WorkloadConfig config = example_config();
  HardwareProfile profile = free_profile();
  profile.memory_bandwidth = 1e12;
  profile.decode_bw_eff = 1e30;
  profile.kv_bw_eff = 1.0;
  profile.vector_eff = 1e30;
  config.workload.gen_quantiles.clear();
  // 511 steps over 128 prompt tokens and the response so far, 524288 bytes a token.
  const double tokens = 64 * (511 * 128.0 + 511 * 512.0 / 2);
  EXPECT_NEAR(
      total_s(generation(), plan_on(1, 1, {1, 1, 1}), config, profile) / (tokens * 524288 / 1e12),
      1.0,
      1e-9);
}

TEST(Trap09Decode, RunsUntilTheExpectedLongestResponse) {
  // Neither E[ℓ] steps nor generation_length.
  const WorkloadConfig config = example_config();
  HardwareProfile profile = free_profile();
  profile.host_step_s = 1.0;
  const double steps = total_s(generation(), plan_on(1, 4, {4, 1, 1}), config, profile) + 1.0;
  EXPECT_NEAR(steps, expected_max_length(config.workload, 64), 1e-9);
  EXPECT_GT(steps, 1.5 * expected_length(config.workload));
  EXPECT_LT(steps, 512.0);
}

TEST(Trap10Staleness, IsOneMoreThanTauOnTheEdge) {
  const WorkloadConfig config = two_vertices();
  for (const std::int64_t tau : {0, 1, 2}) {
    const TaskGraph tasks =
        price(config, {{.tau_actor = tau}, {on_node(0, {4, 1, 1}), on_node(1, {4, 1, 1})}}).tasks;
    ASSERT_EQ(tasks.tasks.size(), 3U);
    std::int64_t delta = -1;
    for (const TaskEdge& edge : tasks.edges) {
      if (edge.from == 2 && edge.to == 0) delta = edge.delta;
    }
    EXPECT_EQ(delta, 1 + tau);
    // At τ = 0 the receiver's GPUs are held too.
    EXPECT_EQ(tasks.tasks[2].gpus, tau == 0 ? 8.0 : 0.0);
  }
}

TEST(Trap10Staleness, HoldsASharedCopyOnce) {
  const WorkloadConfig config = two_vertices();
  const VertexPlan here = on_node(0, {4, 1, 1});
  const auto weights = 2.0 * static_cast<double>(parameter_count(llama_2_7b(), false));
  EXPECT_DOUBLE_EQ(price(config, {{}, {here, here}}).memory[0].weights, weights);
}

}  // namespace
}  // namespace rpeg
