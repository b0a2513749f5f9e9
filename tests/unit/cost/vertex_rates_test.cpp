#include "cost/vertex_rates.h"

#include <gtest/gtest.h>

#include "cost/network.h"
#include "cost/shard.h"
#include "unit/cost/example.h"

namespace rpeg {
namespace {

VertexRates rates_of(const HardwareProfile& profile,
                     int tp,
                     const WorkloadConfig& config = example_config(),
                     CallKind kind = CallKind::kSequences) {
  return vertex_rates(reference(), plan_on(1, tp, {1, 1, tp}), config, profile, 4096.0, kind);
}

TEST(VertexRates, TakeTheLargestTensorSizeThatWasMeasured) {
  HardwareProfile profile = example_profile();
  profile.decode_bw_eff_tp = {{2, 0.5}, {8, 0.25}};
  profile.gemm_m_half_tp = {{4, 300.0}};
  profile.flops_eff_tp = {{2, 0.5}};
  const double elements = layer_matrix_elements(llama_2_7b(), 1);
  const auto floor_s = [&](int tp, double eff) { return elements / tp * 2.0 / (eff * 2e12); };
  EXPECT_DOUBLE_EQ(rates_of(profile, 1).linear.floor_s, floor_s(1, 0.6));  // the plain key
  EXPECT_DOUBLE_EQ(rates_of(profile, 2).linear.floor_s, floor_s(2, 0.5));
  EXPECT_DOUBLE_EQ(rates_of(profile, 4).linear.floor_s, floor_s(4, 0.5));  // that of 2
  EXPECT_DOUBLE_EQ(rates_of(profile, 8).linear.floor_s, floor_s(8, 0.25));
  EXPECT_DOUBLE_EQ(rates_of(profile, 2).linear.half_rows, 240.0);
  EXPECT_DOUBLE_EQ(rates_of(profile, 8).linear.half_rows, 300.0);
  EXPECT_DOUBLE_EQ(rates_of(profile, 1).linear.row_s, 2.0 * elements / 400e12);
  EXPECT_DOUBLE_EQ(rates_of(profile, 2).linear.row_s, 2.0 * elements / 2 / 200e12);
  // The head is a matrix product like the others.
  EXPECT_DOUBLE_EQ(rates_of(profile, 4).head.half_rows, 300.0);
}

TEST(VertexRates, PayForEveryMatrixProduct) {
  HardwareProfile profile = example_profile();
  const GemmTime plain = rates_of(profile, 1).linear;
  profile.gemm_call_s = 3e-6;
  profile.gemm_call_floor_s = 5e-6;
  const GemmTime linear = rates_of(profile, 1).linear;
  // Four in a layer: QKV, O, gate and up, down.
  EXPECT_DOUBLE_EQ(linear.at(1.0), plain.floor_s + 4 * 5e-6);
  EXPECT_DOUBLE_EQ(linear.at(1e5), plain.row_s * (1e5 + 240) + 4 * 3e-6);
  EXPECT_DOUBLE_EQ(rates_of(profile, 1).head.call_s, 3e-6);  // one
  // Where the two meet.
  const double rows = linear.switch_rows();
  EXPECT_NEAR(linear.row_s * (rows + 240) + linear.call_s, linear.floor_s, 1e-12);
  // Backward has two sets of products.
  WorkloadConfig config = example_config();
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1});
  const double with = price_vertex(critic_training(), plan, config, profile).total_s;
  profile.gemm_call_s = 0.0;
  const double without = price_vertex(critic_training(), plan, config, profile).total_s;
  EXPECT_NEAR(with - without, 32 * 3 * 4 * 3e-6, 1e-9);  // the scalar head is bound by reading
}

TEST(VertexRates, DivideNormsWithSequenceParallelism) {
  HardwareProfile profile = example_profile();
  profile.non_gemm_replicated = 4e-5;
  profile.alpha_step_s = {};
  WorkloadConfig config = example_config();
  const VertexRates plain = rates_of(profile, 4, config);
  config.optimizer.sequence_parallel = true;
  const VertexRates split = rates_of(profile, 4, config);
  EXPECT_DOUBLE_EQ(plain.non_gemm_token_s, (1e-4 / 4 + 4e-5) / 4096);
  EXPECT_DOUBLE_EQ(split.non_gemm_token_s, (1e-4 / 4 + 4e-5 / 4) / 4096);
  // All-gather and reduce-scatter: the same bytes, two calls.
  EXPECT_DOUBLE_EQ(split.all_reduce.beta_s_per_byte, plain.all_reduce.beta_s_per_byte);
  EXPECT_DOUBLE_EQ(split.all_reduce.alpha_s, 2.0 * plain.all_reduce.alpha_s);
  // A decode step has one row a sequence, and one GPU nothing to divide.
  const VertexRates decode = rates_of(profile, 4, config, CallKind::kDecodeStep);
  EXPECT_DOUBLE_EQ(decode.non_gemm_token_s, plain.non_gemm_token_s);
  EXPECT_DOUBLE_EQ(decode.all_reduce.alpha_s, plain.all_reduce.alpha_s);
  EXPECT_DOUBLE_EQ(rates_of(profile, 1, config).non_gemm_token_s,
                   rates_of(profile, 1).non_gemm_token_s);
}

TEST(VertexRates, KeepTheLatencyOfATableInTheLastStepsOfDecoding) {
  // A row is 8192 bytes; two ranks send n. Small messages take 20 µs whatever their size.
  HardwareProfile profile = example_profile();
  profile.collective_table[0] = {{1e4, 2e-5}, {1e6, 2e-5}, {1e8, 2e-3}};
  const auto rates = [&](CallKind kind) {
    return vertex_rates(
               generation(), plan_on(1, 2, {1, 1, 2}), example_config(), profile, 1024.0, kind)
        .all_reduce;
  };
  const double most_s = 2e-5 + (1024 * 8192.0 - 1e6) / (1e8 - 1e6) * (2e-3 - 2e-5);
  EXPECT_NEAR(seconds(rates(CallKind::kSequences), 1024.0), most_s, 1e-12);
  EXPECT_NEAR(seconds(rates(CallKind::kDecodeStep), 1024.0), most_s, 1e-12);
  EXPECT_NEAR(seconds(rates(CallKind::kDecodeStep), 1.0), 2e-5, 1e-12);
  EXPECT_LT(seconds(rates(CallKind::kSequences), 1.0), 1e-6);  // the segment of large messages
}

TEST(VertexRates, SendOneSliceToTheNextStageWithSequenceParallelism) {
  WorkloadConfig config = example_config();
  const auto send = [&](CallKind kind) {
    return vertex_rates(
               reference(), plan_on(1, 4, {1, 2, 2}), config, example_profile(), 4096.0, kind)
        .send.beta_s_per_byte;
  };
  EXPECT_DOUBLE_EQ(send(CallKind::kSequences), 4096 * 2.0 * 1e-11);
  config.optimizer.sequence_parallel = true;
  EXPECT_DOUBLE_EQ(send(CallKind::kSequences), 4096.0 * 1e-11);
  EXPECT_DOUBLE_EQ(send(CallKind::kDecodeStep), 4096 * 2.0 * 1e-11);
}

TEST(JointTraining, RunsOneTrunkWithBothHeads) {
  const Vertex joint{"t_piV", Op::kTrainJoint, ModelRole::kActor};
  EXPECT_EQ(head_of(joint), Head::kBoth);
  const WorkloadConfig config = example_config();
  HardwareProfile profile = example_profile();
  profile.gemm_call_s = 1e-3;  // large enough that each product shows
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1});
  const auto time_s = [&](const Vertex& vertex) {
    return price_vertex(vertex, plan, config, profile).total_s;
  };
  // Beyond the actor's training: the scalar product over 64 · E[ℓ] rows, three times, and 4096
  // more parameters to update.
  const double rows = 64 * expected_length(config.workload);
  const double head_s = 3 * (2.0 * 4096 * (rows + 240) / 400e12 + 1e-3);
  EXPECT_NEAR(time_s(joint) - time_s(actor_training()), head_s + 30.0 * 4096 / 2e12, 1e-9);
  EXPECT_LT(time_s(joint), time_s(actor_training()) + 0.1 * time_s(critic_training()));
  EXPECT_NEAR(vertex_model_flop(joint, config) - vertex_model_flop(actor_training(), config),
              3 * 2.0 * rows * 4096,
              1e6);  // of 10¹⁵
  EXPECT_EQ(head_elements(llama_2_7b(), Head::kBoth, 1), 32001.0 * 4096);
}

TEST(Heads, FollowFromTheVertexNotFromTheTrunk) {
  EXPECT_EQ(head_of({"i_V", Op::kInferValue, ModelRole::kActor}), Head::kScalar);
  EXPECT_EQ(head_of(value()), Head::kScalar);
  EXPECT_EQ(head_of(reward()), Head::kScalar);
  EXPECT_EQ(head_of(critic_training()), Head::kScalar);
  EXPECT_EQ(head_of(actor_training()), Head::kLanguageModel);
  EXPECT_EQ(head_of(reference()), Head::kLanguageModel);
  EXPECT_EQ(head_of(generation()), Head::kLanguageModel);
  EXPECT_EQ(head_of({"i_pi", Op::kInferActor, ModelRole::kActor}), Head::kLanguageModel);
}

TEST(Prefill, PaysForEachCall) {
  // 64 prompts of 1024 tokens: four calls of 16384.
  WorkloadConfig config = example_config();
  config.workload.context_length = 1024;
  config.workload.generation_length = 1;
  config.workload.gen_quantiles.clear();
  HardwareProfile profile = example_profile();
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1});
  const double time_s = price_vertex(generation(), plan, config, profile).total_s;
  // Micro-batches of 16 prompts are those calls.
  EXPECT_DOUBLE_EQ(price_vertex(generation(), plan_on(1, 1, {1, 1, 1}, 4), config, profile).total_s,
                   time_s);
  profile.gemm_m_half += 100.0;
  const double layer = layer_matrix_elements(llama_2_7b(), 1);
  // The head has few rows and hardly changes.
  const double added_s = price_vertex(generation(), plan, config, profile).total_s - time_s;
  EXPECT_NEAR(added_s / (4 * 100 * 2.0 * (32 * layer) / 400e12), 1.0, 0.01);
}

TEST(Prefill, TakesThePromptOfAGroupOnce) {
  // One prompt with 16 samples on each replica against 16 prompts: the same decoding.
  WorkloadConfig config = example_config();
  const VertexPlan plan = plan_on(1, 4, {4, 1, 1});
  const double apart = price_vertex(generation(), plan, config, example_profile()).total_s;
  config.workload.batch_size = 4;
  config.workload.samples_per_prompt = 16;
  const double grouped = price_vertex(generation(), plan, config, example_profile()).total_s;
  WorkloadConfig prompts = example_config();
  prompts.workload.generation_length = 1;
  prompts.workload.gen_quantiles.clear();
  const double sixteen = price_vertex(generation(), plan, prompts, example_profile()).total_s;
  prompts.workload.batch_size = 4;
  const double one = price_vertex(generation(), plan, prompts, example_profile()).total_s;
  EXPECT_GT(sixteen, one);
  EXPECT_NEAR(apart - grouped, sixteen - one, 1e-12);
}

TEST(GradientReduction, HidesBehindTheLastBackward) {
  WorkloadConfig config = example_config();
  config.optimizer.zero_stage = 0;
  HardwareProfile profile = example_profile();
  profile.collective[0].beta_s_per_byte = 1e-12;
  const VertexPlan plan = plan_on(1, 4, {4, 1, 1}, 1);
  const auto comm_s = [&] { return price_vertex(actor_training(), plan, config, profile).comm_s; };
  const double whole = comm_s();  // and the gradient norm
  // One number of 4 bytes over four ranks.
  const double norm = 1e-5 + 1.5 * 4 * 1e-12;
  profile.grad_buckets = 4.0;
  EXPECT_NEAR(comm_s() - norm, (whole - norm) / 4, 1e-9);
  // A slow network hides no more than the backward takes; the overlapped part is slower.
  profile.collective[0].beta_s_per_byte = 1e-9;
  const double slow = comm_s();
  profile.overlap_slowdown = 1.5;
  EXPECT_GT(comm_s(), slow);
}

}  // namespace
}  // namespace rpeg
