#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "cost/lengths.h"
#include "unit/cost/example.h"

namespace rpeg {
namespace {

/// One layer, hidden 8, one head of 8, FFN 16, vocabulary 10: every number fits on paper.
WorkloadConfig tiny_config() {
  WorkloadConfig config;
  config.hardware.gpus_per_node = 4;
  config.models.fill(model_of(1, 8, 16, 10, 1, 1));
  config.workload.batch_size = 4;
  config.workload.context_length = 2;
  config.workload.generation_length = 3;
  config.optimizer.dtype = TrainDtype::kFp32;
  config.optimizer.recompute = Recompute::kNone;
  return config;
}

/// 1000 FLOP/s and 100 bytes/s; γ = 5, nothing is free.
HardwareProfile tiny_profile() {
  HardwareProfile profile;
  profile.flops_per_gpu = 1000.0;
  profile.memory_per_gpu = 1e6;
  profile.memory_bandwidth = 100.0;
  profile.collective = {{{1.0, 0.1}, {2.0, 1.0}, {4.0, 10.0}}};
  profile.point_to_point = {{{0.5, 0.1}, {1.0, 1.0}, {2.0, 10.0}}};
  profile.gemm_m_half = 5.0;
  profile.decode_bw_eff = 0.5;
  profile.non_gemm_constant = 0.25;
  profile.non_gemm_scaling = 3.0;
  profile.non_gemm_batch_cal = 10.0;
  profile.attention_eff = 0.5;
  return profile;
}

// The tiny model: attention 4·8·8 = 256, FFN 3·8·16 = 384 elements: 640 of 4 bytes. Reading them
// at 50 bytes/s takes 51.2 s, a row 2·640/1000 = 1.28 s.
constexpr double kFloor = 51.2;
constexpr double kRow = 1.28;
// Head: 80 elements: 6.4 s, 0.16 s a row, and 3 · 4 · 10 / 100 = 1.2 s of logits a row.
constexpr double kHeadRow = 0.16;
constexpr double kLogits = 1.2;
// Attention: 4·8 FLOP a pair at 500 FLOP/s.
constexpr double kPair = 0.064;

TEST(PriceVertex, InferenceByHand) {
  // 4 sequences of 5 tokens: 20 tokens, 4 · 15 attended pairs, 12 response rows, one call.
  const TaskTime time =
      price_vertex(reference(), plan_on(1, 1, {1, 1, 1}), tiny_config(), tiny_profile());
  const double linear = kRow * (20 + 5);  // 32 s are under the 51.2 s of reading
  EXPECT_LT(linear, kFloor);
  const double expected =
      kFloor + 60 * kPair + 0.25 + 20 * 0.3 + std::max(6.4, kHeadRow * (12 + 5)) + 12 * kLogits;
  EXPECT_NEAR(time.total_s, expected, 1e-12);
  EXPECT_NEAR(time.compute_s, expected, 1e-12);
  EXPECT_EQ(time.comm_s, 0.0);
  EXPECT_EQ(time.bubble_s, 0.0);
}

TEST(PriceVertex, CountsNonGemmRowsInSequencesInThePublishedDialect) {
  HardwareProfile profile = tiny_profile();
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1});
  const double tokens = price_vertex(reference(), plan, tiny_config(), profile).total_s;
  profile.non_gemm_per_sequence = true;
  const double sequences = price_vertex(reference(), plan, tiny_config(), profile).total_s;
  EXPECT_NEAR(tokens - sequences, (20 - 4) * 0.3, 1e-12);
}

TEST(PriceVertex, TrainingByHand) {
  WorkloadConfig config = tiny_config();
  config.policy.epochs = 2;
  config.policy.minibatches = 2;
  // Per mini-batch 2 sequences: 10 tokens, 30 pairs, 6 response rows, in two micro-batches of one.
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1}, 2);
  const TaskTime time = price_vertex(actor_training(), plan, config, tiny_profile());
  const double forward = kFloor + 15 * kPair + 0.25 + 5 * 0.3;
  const double backward = 2 * kFloor + 2.5 * 15 * kPair + 2 * (0.25 + 5 * 0.3);
  const double head = std::max(6.4, kHeadRow * (3 + 5)) + 3 * kLogits;
  // 640 + 16 norms, table 80, final norm 8, head 80: 824 parameters of 28 bytes at 100 bytes/s.
  const double update = 824 * 28 / 100.0;
  EXPECT_NEAR(time.total_s, 4 * (2 * (forward + backward + 3 * head) + update), 1e-9);

  config.optimizer.recompute = Recompute::kFull;
  EXPECT_NEAR(price_vertex(actor_training(), plan, config, tiny_profile()).total_s - time.total_s,
              4 * 2 * forward,
              1e-9);
  config.optimizer.recompute = Recompute::kSelective;
  EXPECT_NEAR(price_vertex(actor_training(), plan, config, tiny_profile()).total_s - time.total_s,
              4 * 2 * 0.5 * 15 * kPair,
              1e-9);
}

TEST(PriceVertex, ReducesGradientsOncePerMiniBatchNotPerMicroBatch) {
  WorkloadConfig config = tiny_config();
  config.optimizer.zero_stage = 0;
  // dp 2 in a node: all-reduce of 824 · 4 bytes: 1 + 3296 · 0.1 s; the norm: 1 + 4 · 0.1 s.
  const double once = 1 + 3296 * 0.1 + 1 + 0.4;
  for (const std::int64_t m : {1, 2}) {
    const TaskTime time =
        price_vertex(actor_training(), plan_on(1, 2, {2, 1, 1}, m), config, tiny_profile());
    EXPECT_NEAR(time.comm_s, once, 1e-9);
  }
  config.policy.minibatches = 2;
  EXPECT_NEAR(
      price_vertex(actor_training(), plan_on(1, 2, {2, 1, 1}), config, tiny_profile()).comm_s,
      2 * once,
      1e-9);
  // ZeRO-1: reduce-scatter of the gradients and all-gather of the weights, both 4 bytes here.
  config.policy.minibatches = 1;
  config.optimizer.zero_stage = 1;
  EXPECT_NEAR(
      price_vertex(actor_training(), plan_on(1, 2, {2, 1, 1}), config, tiny_profile()).comm_s,
      2 * (1 + 0.5 * 3296 * 0.1) + 1 + 0.4,
      1e-9);
}

TEST(PriceVertex, ReducesShardedGradientsForEveryMicroBatch) {
  WorkloadConfig config = tiny_config();
  // Without room for whole gradients (ZeRO-2) every micro-batch pays the reduce-scatter; the
  // weights are gathered once a step, or (ZeRO-3) before each forward and backward.
  const double pass = 1 + 0.5 * 3296 * 0.1;
  const double norm = 1 + 0.4;
  for (const std::int64_t m : {1, 2}) {
    const auto comm_s = [&](std::int64_t zero_stage) {
      config.optimizer.zero_stage = zero_stage;
      return price_vertex(actor_training(), plan_on(1, 2, {2, 1, 1}, m), config, tiny_profile())
          .comm_s;
    };
    const auto calls = static_cast<double>(m);
    EXPECT_NEAR(comm_s(1), 2 * pass + norm, 1e-9);
    EXPECT_NEAR(comm_s(2), (calls + 1) * pass + norm, 1e-9);
    EXPECT_NEAR(comm_s(3), 3 * calls * pass + norm, 1e-9);
  }
}

TEST(PriceVertex, CountsAllReducesOfTensorParallelism) {
  WorkloadConfig config = tiny_config();
  config.models.fill(model_of(3, 8, 16, 10, 2, 2));
  HardwareProfile profile = tiny_profile();
  profile.alpha_step_s = {};
  const VertexPlan plan = plan_on(1, 2, {1, 1, 2});
  // 20 tokens of 8 · 4 bytes over two ranks: 1 + 640 · 0.1 s each.
  const double all_reduce = 1 + 64.0;
  const double norm = 1 + 0.4;
  EXPECT_NEAR(price_vertex(reference(), plan, config, profile).comm_s, 3 * 2 * all_reduce, 1e-9);
  EXPECT_NEAR(price_vertex(actor_training(), plan, config, profile).comm_s,
              3 * 4 * all_reduce + norm,
              1e-9);
  config.optimizer.recompute = Recompute::kFull;
  EXPECT_NEAR(price_vertex(actor_training(), plan, config, profile).comm_s,
              3 * 6 * all_reduce + norm,
              1e-9);
}

TEST(PriceVertex, HasTheHeadOnTheLastStageOnlyAndABubblePerMiniBatch) {
  WorkloadConfig config = tiny_config();
  config.models.fill(model_of(2, 8, 16, 10, 1, 1));
  HardwareProfile profile = tiny_profile();
  profile.point_to_point = {};
  const auto price = [&](const VertexPlan& plan) {
    return price_vertex(reference(), plan, config, profile);
  };
  // Two stages, m = 4 sequences one by one: layer, layer + head.
  const double layer = kFloor + 15 * kPair + 0.25 + 5 * 0.3;
  const double head = std::max(6.4, kHeadRow * (3 + 5)) + 3 * kLogits;
  const TaskTime time = price(plan_on(1, 2, {1, 2, 1}, 4));
  EXPECT_NEAR(time.compute_s, 4 * (layer + head), 1e-9);
  EXPECT_NEAR(time.bubble_s, layer, 1e-9);
  // Training: each mini-batch has its own bubble.
  for (const std::int64_t minibatches : {1, 2}) {
    config.policy.minibatches = minibatches;
    const TaskTime training =
        price_vertex(actor_training(), plan_on(1, 2, {1, 2, 1}, 2), config, profile);
    const double sequences = 2.0 / static_cast<double>(minibatches);
    const double stage = 3 * (kFloor + 0.25 + 5 * sequences * 0.3) + 3.5 * 15 * sequences * kPair;
    EXPECT_NEAR(training.bubble_s, static_cast<double>(minibatches) * stage, 1e-9);
  }
}

TEST(PriceVertex, GivesTheCriticNoVocabulary) {
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1});
  const double lm = price_vertex(reference(), plan, tiny_config(), tiny_profile()).total_s;
  const double scalar = price_vertex(value(), plan, tiny_config(), tiny_profile()).total_s;
  // 8 elements: 0.64 s to read; 0.016 s a row, never more.
  EXPECT_NEAR(lm - scalar, 6.4 + 12 * kLogits - 0.64, 1e-9);
}

/// The decode step of the tiny model with `layers` layers, one GPU: written out.
double tiny_step(double live, double context, int layers) {
  // K and V of 8 elements of 4 bytes at 50 bytes/s: 1.28 s a token, more than its 0.064 s of FLOPs.
  const double layer = std::max(kFloor, kRow * (live + 5)) + 1.28 * context + 0.25 + 0.3 * live;
  return layers * layer + std::max(6.4, kHeadRow * (live + 5)) + kLogits * live;
}

TEST(Generation, OfFixedLengthEqualsTheTokenLoop) {
  WorkloadConfig config = tiny_config();
  config.workload.generation_length = 37;
  config.workload.batch_size = 64;
  // Prefill: 64 prompts of 2 tokens make the first token.
  double expected = kRow * (128 + 5) + 64 * 3 * kPair + 0.25 + 128 * 0.3 +
                    std::max(6.4, kHeadRow * (64 + 5)) + 64 * kLogits;
  for (int t = 1; t < 37; ++t) expected += tiny_step(64, 64.0 * (2 + t), 1);
  const TaskTime time =
      price_vertex(generation(), plan_on(1, 1, {1, 1, 1}), config, tiny_profile());
  EXPECT_NEAR(time.total_s / expected, 1.0, 1e-12);
}

/// ∫ f over [lo, hi], composite Simpson on a grid so fine that kinks do not matter.
double integrate(double lo, double hi, const std::function<double(double)>& f) {
  constexpr int kSteps = 1 << 16;
  double sum = 0.0;
  for (int i = 0; i < kSteps; ++i) {
    const double a = lo + (hi - lo) * i / kSteps;
    const double b = lo + (hi - lo) * (i + 1) / kSteps;
    sum += (b - a) / 6.0 * (f(a) + 4.0 * f(0.5 * (a + b)) + f(b));
  }
  return sum;
}

/// ∫ step(live, context) − step(0, 0)·G^sequences over the example's length distribution.
double integrate_decode(const WorkloadConfig& config,
                        double replica_sequences,
                        const std::function<double(double, double)>& step) {
  double sum = 0.0;
  for (const LengthPiece& piece : length_pieces(config.workload, 1.0)) {
    sum += integrate(piece.t0, piece.t1, [&](double t) {
      const double live = replica_sequences * (1.0 - piece.at(t));
      return step(live, live * (2.0 + t - 0.5)) -
             step(0.0, 0.0) *
                 std::pow(piece.at(t), static_cast<double>(config.workload.sequences()));
    });
  }
  return sum;
}

TEST(Generation, OverALengthDistributionEqualsNumericalIntegration) {
  WorkloadConfig config = tiny_config();
  config.workload.batch_size = 64;
  config.workload.generation_length = 40;
  config.workload.gen_quantiles = {{0.3, 10}, {0.9, 20}, {1.0, 40}};
  // 64 rows cost more than reading, 35 and fewer do not: the `max` changes inside a piece.
  EXPECT_GT(kRow * (64 + 5), kFloor);
  const double prefill = kRow * (128 + 5) + 64 * 3 * kPair + 0.25 + 128 * 0.3 +
                         std::max(6.4, kHeadRow * (64 + 5)) + 64 * kLogits;
  const double expected = prefill + integrate_decode(config, 64, [](double live, double context) {
                            return tiny_step(live, context, 1);
                          });
  const TaskTime time =
      price_vertex(generation(), plan_on(1, 1, {1, 1, 1}), config, tiny_profile());
  EXPECT_NEAR(time.total_s / expected, 1.0, 1e-9);
}

TEST(Generation, OnAPipelineTakesTheSlowerOfSteadyStateAndRing) {
  WorkloadConfig config = tiny_config();
  config.models.fill(model_of(3, 8, 16, 10, 1, 1));
  config.workload.batch_size = 64;
  config.workload.generation_length = 40;
  config.workload.gen_quantiles = {{0.3, 10}, {0.9, 20}, {1.0, 40}};
  HardwareProfile profile = tiny_profile();
  // At first the ring waits for the sends of many sequences, later the stages read a long cache.
  profile.point_to_point[0] = {0.0, 0.1};
  const auto layer = [](double live, double context) {
    return std::max(kFloor, kRow * (live + 5)) + 1.28 * context + 0.25 + 0.3 * live;
  };
  int ring_wins = 0;
  int stage_wins = 0;
  const auto step = [&](double live, double context) {
    const double one = layer(live / 2, context / 2);
    const double head = std::max(6.4, kHeadRow * (live / 2 + 5)) + kLogits * live / 2;
    const double steady = 2 * std::max(2 * one, one + head);
    const double ring = 3 * one + head + 2 * (live / 2) * 32 * 0.1;
    (ring > steady ? ring_wins : stage_wins) += 1;
    return std::max(steady, ring);
  };
  const double decode = integrate_decode(config, 64, step);
  EXPECT_GT(ring_wins, 1000);
  EXPECT_GT(stage_wins, 1000);
  // Prefill: two micro-batches of 32 prompts; two layers, one layer and the head.
  const double one = kRow * (64 + 5) + 32 * 3 * kPair + 0.25 + 64 * 0.3;
  const double head = std::max(6.4, kHeadRow * (32 + 5)) + 32 * kLogits;
  const double prefill = std::max(2 * one, one + head) + 3 * one + head + 64 * 32 * 0.1;
  const TaskTime time = price_vertex(generation(), plan_on(1, 2, {1, 2, 1}, 2), config, profile);
  EXPECT_NEAR(time.total_s / (prefill + decode), 1.0, 1e-8);
}

TEST(Generation, PaysForTheExpectedLongestOfTheWholeBatch) {
  // Only the fixed cost of a step: host work of 1 s. Prefill has none.
  WorkloadConfig config = example_config();
  HardwareProfile profile = example_profile();
  const VertexPlan plan = plan_on(1, 4, {4, 1, 1});
  const double before = price_vertex(generation(), plan, config, profile).total_s;
  profile.host_step_s = 1.0;
  const double after = price_vertex(generation(), plan, config, profile).total_s;
  // The first token comes from prefill; all 64 sequences count although a replica has 16.
  EXPECT_NEAR(after - before, expected_max_length(config.workload, 64) - 1.0, 1e-9);
}

TEST(Generation, HasAFloorThatMoreReplicasDoNotLower) {
  WorkloadConfig config = example_config();
  HardwareProfile profile = example_profile();
  profile.non_gemm_constant = 1.2e-4;
  profile.collective[0].alpha_s = 7.8e-5;
  const double layer_bytes = 2.0 * (4.0 * 4096 * 4096 + 3.0 * 4096 * 11008) / 4;
  const double head_bytes = 2.0 * 32256 * 4096 / 4;  // rows rounded up to 128 · tp
  const double read = profile.decode_bw_eff * profile.memory_bandwidth;
  const double step = 32 * (layer_bytes / read + 1.2e-4 + 2 * 7.8e-5) + head_bytes / read;
  const double floor_s = (expected_max_length(config.workload, 64) - 1.0) * step;
  double before = 0.0;
  for (const int nodes : {1, 8, 16}) {
    VertexPlan plan = plan_on(std::min(nodes, 8), 4, {nodes, 1, 4});
    plan.placement.racks = {0, nodes > 8 ? 1 : 0};
    const double seconds = price_vertex(generation(), plan, config, profile).total_s;
    EXPECT_GT(seconds, floor_s);
    if (nodes > 1) {
      EXPECT_LT(seconds, before);
      EXPECT_LT(seconds, 1.1 * floor_s);
    }
    before = seconds;
  }
}

TEST(Generation, ReadsReplicatedKvHeadsOnEveryRank) {
  // 70B at tp 16: one KV head on each of 16 ranks although there are 8.
  WorkloadConfig config = example_config();
  config.models.fill(llama_2_70b());
  HardwareProfile profile = example_profile();
  const auto kv_time = [&](int tp) {
    const VertexPlan plan = plan_on(1, tp, {1, 1, tp});
    profile.kv_bw_eff = 1.0;
    const double fast = price_vertex(generation(), plan, config, profile).total_s;
    profile.kv_bw_eff = 0.5;
    return price_vertex(generation(), plan, config, profile).total_s - fast;
  };
  EXPECT_NEAR(kv_time(16) / kv_time(8), 1.0, 1e-6);
  EXPECT_NEAR(kv_time(4) / kv_time(8), 2.0, 1e-6);
}

TEST(Generation, ReadsPromptTokensFromTheCache) {
  WorkloadConfig config = example_config();
  HardwareProfile profile = example_profile();
  profile.kv_bw_eff = 0.6;
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1});
  const auto kv_s = [&] {
    HardwareProfile slow = profile;
    slow.kv_bw_eff = 0.3;
    return price_vertex(generation(), plan, config, slow).total_s -
           price_vertex(generation(), plan, config, profile).total_s;
  };
  const double with_prompt = kv_s();
  config.workload.context_length = 0;
  const double without = kv_s();
  // 524 288 bytes a token; 128 prompt tokens in E[ℓ] − ∫₀¹(1 − G) steps of each of 64 sequences.
  const double steps = expected_length(config.workload) - (1.0 - 0.5 * 0.5 / 128);
  EXPECT_NEAR((with_prompt - without) / (64 * 128 * steps * 524288 / (0.6 * 2e12)), 1.0, 1e-9);
}

TEST(PriceVertex, PricesMisalignedTensorGroupsAtTheSlowTier) {
  WorkloadConfig config = example_config();
  const HardwareProfile profile = example_profile();
  // tp 4 on GPUs 0-3 of one node, against GPUs 0-1 of two nodes.
  const double aligned =
      price_vertex(reference(), plan_on(1, 4, {1, 1, 4}), config, profile).comm_s;
  const double across = price_vertex(reference(), plan_on(2, 2, {1, 1, 4}), config, profile).comm_s;
  EXPECT_GT(across, 3 * aligned);
}

TEST(PriceVertex, IsPositionFree) {
  const WorkloadConfig config = example_config();
  const HardwareProfile profile = example_profile();
  const VertexPlan here{{2, 1, 2}, 2, {{0, 0}, {0, 1}, {0, 1}}};
  const VertexPlan there{{2, 1, 2}, 2, {{1, 1}, {5, 6}, {2, 3}}};
  for (const Vertex& vertex : {generation(), reference(), reward(), critic_training()}) {
    EXPECT_EQ(price_vertex(vertex, here, config, profile).total_s,
              price_vertex(vertex, there, config, profile).total_s);
  }
}

TEST(PriceVertex, GrowsWithWorkAndFallsWithSpeed) {
  const HardwareProfile profile = example_profile();
  for (const Vertex& vertex : {generation(), reference(), reward(), value(), actor_training()}) {
    for (const Parallelism p : {Parallelism{4, 1, 1}, {1, 4, 1}, {1, 1, 4}, {2, 2, 1}}) {
      const VertexPlan plan = plan_on(1, 4, p, 2);
      const auto total = [&](const WorkloadConfig& c, const HardwareProfile& h) {
        const TaskTime time = price_vertex(vertex, plan, c, h);
        EXPECT_NEAR(time.total_s, time.compute_s + time.comm_s + time.bubble_s, 1e-12);
        EXPECT_GE(time.comm_s, 0.0);
        EXPECT_GE(time.bubble_s, 0.0);
        return time.total_s;
      };
      const WorkloadConfig config = example_config();
      const double base = total(config, profile);
      WorkloadConfig more = config;
      more.workload.batch_size = 96;
      EXPECT_GT(total(more, profile), base);
      more = config;
      more.workload.context_length = 256;
      EXPECT_GT(total(more, profile), base);
      HardwareProfile faster = profile;
      faster.flops_per_gpu *= 2.0;
      EXPECT_LE(total(config, faster), base);
      faster = profile;
      faster.memory_bandwidth *= 2.0;
      EXPECT_LE(total(config, faster), base);
      faster = profile;
      for (AlphaBeta& tier : faster.collective) tier.beta_s_per_byte *= 0.5;
      EXPECT_LE(total(config, faster), base);
    }
  }
}

TEST(PriceVertex, DpoCountsAPairAsTwoSequences) {
  WorkloadConfig config = example_config();
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1}, 64);
  const double single = price_vertex(reference(), plan, config, example_profile()).total_s;
  config.policy.algorithm = Algorithm::kDpo;
  config.workload.batch_size = 32;  // 32 pairs are 64 sequences
  const VertexPlan pairs = plan_on(1, 1, {1, 1, 1}, 32);
  const double paired = price_vertex(reference(), pairs, config, example_profile()).total_s;
  EXPECT_LT(paired, single);  // half of the calls, the same tokens
  EXPECT_GT(paired, 0.5 * single);
}

}  // namespace
}  // namespace rpeg
