#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/cost/example.h"

namespace rpeg {
namespace {

using testing::HasSubstr;

TEST(VertexMemory, CountsStaticBytesPerParameter) {
  WorkloadConfig config = example_config();
  const auto elements = static_cast<double>(parameter_count(llama_2_7b(), false));
  const auto static_bytes = [&](const VertexPlan& plan) {
    const MemoryUse use = vertex_memory(actor_training(), plan, config, example_profile());
    return use.weights + use.optimizer;
  };
  // bf16 weights, fp32 gradients, master and two moments: 2 + 4 + 12 = 18; sharded 6 + 12/dp.
  config.optimizer.zero_stage = 0;
  EXPECT_DOUBLE_EQ(static_bytes(plan_on(1, 4, {4, 1, 1})), 18 * elements);
  config.optimizer.zero_stage = 1;
  EXPECT_DOUBLE_EQ(static_bytes(plan_on(1, 4, {4, 1, 1})), (6 + 12 / 4.0) * elements);
  config.optimizer.zero_stage = 2;
  EXPECT_DOUBLE_EQ(static_bytes(plan_on(1, 4, {4, 1, 1})), (2 + 16 / 4.0) * elements);
  config.optimizer.zero_stage = 3;
  EXPECT_DOUBLE_EQ(static_bytes(plan_on(1, 4, {4, 1, 1})), 18 / 4.0 * elements);
  config.optimizer.dtype = TrainDtype::kFp32;
  config.optimizer.zero_stage = 0;
  EXPECT_DOUBLE_EQ(static_bytes(plan_on(1, 1, {1, 1, 1})), 16 * elements);
}

TEST(VertexMemory, HoldsTheWeightsThatZero3HasGathered) {
  WorkloadConfig config = example_config();
  const auto activations = [&](std::int64_t zero_stage, int dp) {
    config.optimizer.zero_stage = zero_stage;
    return vertex_memory(actor_training(), plan_on(1, dp, {dp, 1, 1}), config, example_profile())
        .activations;
  };
  // The three quarters of a layer's weights (bf16) that the other replicas hold.
  const double layer = 4.0 * 4096 * 4096 + 3.0 * 4096 * 11008 + 2.0 * 4096;
  EXPECT_DOUBLE_EQ(activations(3, 4) - activations(2, 4), 0.75 * 2 * layer);
  EXPECT_DOUBLE_EQ(activations(3, 1), activations(2, 1));
  // The head of a large vocabulary outweighs a layer: 128,256 · 4096.
  config.models[static_cast<std::size_t>(ModelRole::kActor)] = llama_3_8b();
  EXPECT_DOUBLE_EQ(activations(3, 4) - activations(2, 4), 0.75 * 2 * 128256.0 * 4096);
}

TEST(VertexMemory, KeepsTheActivationsOfMicroBatchesInFlight) {
  WorkloadConfig config = example_config();
  config.workload.context_length = 1536;  // with the response 2048 tokens
  // Llama-2-7B, one sequence of 2048 tokens, one layer: the published formula gives
  // 2·2048·(4·4096 + 2·4096 + 2·4096 + 3·11008) + 4·2048·32 = 257.0 MiB: half of what 4-byte
  // activations (514.0 MiB measured as 514.56) take.
  const double layer = 2.0 * 2048 * (8 * 4096 + 3 * 11008) + 4.0 * 2048 * 32;
  const double inputs = 2.0 * 2048 * 4096;
  const auto activations = [&](int pp, std::int64_t m) {
    return vertex_memory(actor_training(), plan_on(1, pp, {1, pp, 1}, m), config, example_profile())
        .activations;
  };
  EXPECT_DOUBLE_EQ(activations(1, 64), 32 * layer);
  // Stage 0 of 4 keeps min(m, 4) micro-batches of its 8 layers: 32 layers' worth again.
  EXPECT_DOUBLE_EQ(activations(4, 64), 32 * layer);
  EXPECT_DOUBLE_EQ(activations(4, 32), 32 * layer * 2);
  config.workload.batch_size = 2;
  EXPECT_DOUBLE_EQ(activations(4, 2), 2 * 8 * layer);
  config.workload.batch_size = 64;
  config.optimizer.recompute = Recompute::kFull;
  EXPECT_DOUBLE_EQ(activations(1, 64), 32 * inputs + layer);
  config.optimizer.recompute = Recompute::kSelective;
  EXPECT_LT(activations(1, 64), 32 * layer);
}

TEST(VertexMemory, DividesNormsAndStoredInputsWithSequenceParallelism) {
  WorkloadConfig config = example_config();
  config.workload.context_length = 1536;
  const auto activations = [&](const Vertex& vertex, bool sequences, Recompute recompute) {
    config.optimizer.sequence_parallel = sequences;
    config.optimizer.recompute = recompute;
    return vertex_memory(vertex, plan_on(1, 4, {1, 1, 4}, 64), config, example_profile())
        .activations;
  };
  const double slice = 2.0 * 2048 * 4096;  // of the residual stream
  const auto saved = [&](const Vertex& vertex, Recompute recompute) {
    return activations(vertex, false, recompute) - activations(vertex, true, recompute);
  };
  // Four whole slices become five quarters.
  EXPECT_DOUBLE_EQ(saved(reference(), Recompute::kNone), slice * (4 - 1.25));
  EXPECT_DOUBLE_EQ(saved(actor_training(), Recompute::kNone), 32 * slice * (4 - 1.25));
  EXPECT_DOUBLE_EQ(saved(actor_training(), Recompute::kFull),
                   32 * slice * 0.75 + slice * (4 - 1.25));
}

TEST(VertexMemory, PrefillsNoMoreThanOneCallAtOnce) {
  WorkloadConfig config = example_config();
  const auto tokens = [&](std::int64_t prompt, std::int64_t batch) {
    config.workload.context_length = prompt;
    config.workload.batch_size = batch;
    const VertexPlan plan = plan_on(1, 1, {1, 1, 1});
    // A layer's bytes a token: Llama-2-7B as above.
    return vertex_memory(generation(), plan, config, example_profile()).activations /
           (2.0 * (8 * 4096 + 3 * 11008) + 4.0 * 32);
  };
  EXPECT_DOUBLE_EQ(tokens(128, 64), 128 * 64);
  EXPECT_DOUBLE_EQ(tokens(1000, 1024), 16 * 1000);  // ⌊16384/1000⌋ prompts
  EXPECT_DOUBLE_EQ(tokens(20000, 64), 20000);       // one longer prompt
  EXPECT_DOUBLE_EQ(tokens(1, 100000), 100000);      // a decode step has a row a sequence
}

TEST(VertexMemory, OfJointTrainingHasBothHeads) {
  const WorkloadConfig config = example_config();
  const Vertex joint{"t_piV", Op::kTrainJoint, ModelRole::kActor};
  const Vertex value_of_trunk{"i_V", Op::kInferValue, ModelRole::kActor};
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1}, 64);
  const auto memory = [&](const Vertex& vertex) {
    return vertex_memory(vertex, plan, config, example_profile());
  };
  EXPECT_DOUBLE_EQ(memory(joint).weights - memory(actor_training()).weights, 2.0 * 4096);
  EXPECT_DOUBLE_EQ(memory(joint).optimizer - memory(actor_training()).optimizer, 16.0 * 4096);
  EXPECT_DOUBLE_EQ(memory(joint).logits, memory(actor_training()).logits);
  // A value on the actor's trunk needs no table of logits.
  EXPECT_DOUBLE_EQ(memory(value_of_trunk).weights, memory(value()).weights);
  EXPECT_EQ(memory(value_of_trunk).logits, 0.0);
}

TEST(VertexMemory, HasLogitsOnlyWithALanguageModelHead) {
  const WorkloadConfig config = example_config();
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1}, 64);
  // One sequence, 512 response tokens, 32 000 logits: bf16, fp32, and the gradient of training.
  EXPECT_DOUBLE_EQ(vertex_memory(reference(), plan, config, example_profile()).logits,
                   6.0 * 512 * 32000);
  EXPECT_DOUBLE_EQ(vertex_memory(value(), plan, config, example_profile()).logits, 0.0);
  EXPECT_DOUBLE_EQ(vertex_memory(critic_training(), plan, config, example_profile()).logits, 0.0);
}

PricedPlan price(const WorkloadConfig& config, const Plan& plan, const HardwareProfile& profile) {
  return price_plan(plan, build_graph(config.policy, plan.structure), config, profile);
}

TEST(PlanMemory, CountsASharedCopyOnce) {
  const WorkloadConfig config = two_vertices();
  const HardwareProfile profile = example_profile();
  const auto weights = 2.0 * static_cast<double>(parameter_count(llama_2_7b(), false));
  const VertexPlan a = plan_on(1, 4, {4, 1, 1}, 16);
  EXPECT_DOUBLE_EQ(price(config, {{}, {a, a}}, profile).memory[0].weights, weights);
  // Another layout on the same GPUs is another copy.
  const VertexPlan b = plan_on(1, 4, {1, 1, 4}, 16);
  EXPECT_NEAR(
      price(config, {{}, {b, a}}, profile).memory[0].weights, 1.25 * weights, 1e-3 * weights);
  // τ = 1: the consumer reads one version while the next one arrives.
  EXPECT_DOUBLE_EQ(price(config, {{.tau_actor = 1}, {a, a}}, profile).memory[0].weights,
                   3 * weights);
}

TEST(PlanMemory, KeepsWhatATrainerSendsWhileItTrains) {
  const WorkloadConfig config = two_vertices();
  const HardwareProfile profile = example_profile();
  const auto weights = 2.0 * static_cast<double>(parameter_count(llama_2_7b(), false));
  const VertexPlan a = plan_on(1, 4, {4, 1, 1}, 16);
  VertexPlan elsewhere = a;
  elsewhere.placement.nodes = {3, 3};
  const auto trainer_weights = [&](std::int64_t tau) {
    return price(config, {{.tau_actor = tau}, {a, elsewhere}}, profile).memory[1].weights;
  };
  // At τ = 0 nobody trains during the transfer; later a next update may come before it ends.
  EXPECT_DOUBLE_EQ(trainer_weights(0), weights);
  EXPECT_DOUBLE_EQ(trainer_weights(1), 2 * weights);
  EXPECT_DOUBLE_EQ(trainer_weights(2), 2 * weights);
}

TEST(PlanMemory, NeverSharesTheReferenceWithTheActor) {
  WorkloadConfig config = two_vertices();
  config.policy.kl_reference = true;
  const VertexPlan a = plan_on(1, 4, {4, 1, 1}, 16);
  const auto weights = 2.0 * static_cast<double>(parameter_count(llama_2_7b(), false));
  EXPECT_DOUBLE_EQ(price(config, {{}, {a, a, a}}, example_profile()).memory[0].weights,
                   2 * weights);
}

TEST(PlanMemory, AddsResidencyAndTakesTheLargestWorkingMemory) {
  const WorkloadConfig config = two_vertices();
  HardwareProfile profile = example_profile();
  profile.reserve_bytes = 1e9;
  const VertexPlan a = plan_on(1, 4, {4, 1, 1}, 16);
  const MemoryUse alone_g = vertex_memory(generation(), a, config, profile);
  const MemoryUse alone_t = vertex_memory(actor_training(), a, config, profile);
  const PricedPlan priced = price(config, {{}, {a, a}}, profile);
  const auto dynamic = [](const MemoryUse& use) {
    return use.activations + use.kv_cache + use.logits;
  };
  EXPECT_DOUBLE_EQ(
      priced.peak_bytes,
      alone_t.weights + alone_t.optimizer + std::max(dynamic(alone_g), dynamic(alone_t)) + 1e9);
  // On different GPUs each has what it has alone.
  VertexPlan elsewhere = a;
  elsewhere.placement.nodes = {3, 3};
  const PricedPlan apart = price(config, {{}, {a, elsewhere}}, profile);
  EXPECT_DOUBLE_EQ(apart.memory[0].total, alone_g.total);
  EXPECT_DOUBLE_EQ(apart.memory[1].total, alone_t.total);
}

TEST(PlanMemory, ReportsOverflowPerGpuAndNamesTheWorst) {
  const WorkloadConfig config = two_vertices();  // 2 racks · 8 nodes · 4 GPUs = 64 GPUs
  HardwareProfile profile = example_profile();
  const VertexPlan a = plan_on(1, 4, {4, 1, 1}, 16);
  VertexPlan b = a;
  b.placement.nodes = {3, 3};
  const Plan plan{{}, {a, b}};
  EXPECT_EQ(price(config, plan, profile).overflow, 0.0);
  EXPECT_EQ(price(config, plan, profile).overflow_text, "");
  const double need = price(config, plan, profile).memory[1].total;
  profile.memory_per_gpu = need / 1.5;
  const PricedPlan priced = price(config, plan, profile);
  ASSERT_LT(priced.memory[0].total, profile.memory_per_gpu);
  EXPECT_NEAR(priced.overflow, 4 * 0.5 / 64, 1e-12);  // four GPUs are 50 % over
  EXPECT_THAT(priced.overflow_text, HasSubstr("GPU r0 n3 g0 needs"));
  EXPECT_THAT(priced.overflow_text, HasSubstr("t_pi weights"));
  EXPECT_THAT(priced.overflow_text, HasSubstr("while t_pi runs: activations"));
}

}  // namespace
}  // namespace rpeg
