#include <gtest/gtest.h>

#include <cmath>

#include "cost/network.h"
#include "cost/pipeline.h"
#include "cost/reshard.h"
#include "cost/shard.h"
#include "unit/cost/example.h"

// Figures that others published, each from our own formulas. The sources stand at the tests; the
// configurations of Megatron's papers are 16-bit, s = 2048 tokens, V = 51200.

namespace rpeg {
namespace {

constexpr double kMib = 1024.0 * 1024.0;
constexpr double kGib = 1024.0 * kMib;

/// A GPT of Megatron's papers: f = 4h, two matrices.
ModelSpec gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads) {
  ModelSpec model = model_of(layers, hidden, 4 * hidden, 51200, heads, heads);
  model.gated_ffn = false;
  return model;
}

TEST(Oracle, Row01ParametersOfLlamaAndQwen) {
  EXPECT_EQ(parameter_count(llama_2_7b(), false), 6'738'415'616);
  EXPECT_EQ(parameter_count(llama_2_70b(), false), 68'976'648'192);
  EXPECT_EQ(parameter_count(llama_3_8b(), false), 8'030'261'248);
  EXPECT_EQ(parameter_count(llama_2_7b(), true), 6'607'347'712);
  // Qwen2.5 adds (a + 2 n_kv) d biases per layer, which this family of models has not.
  EXPECT_EQ(parameter_count(model_of(28, 3584, 18944, 152064, 28, 4), false) + 28 * 36 * 128,
            7'615'616'512);
  ModelSpec tied = model_of(24, 896, 4864, 151936, 14, 2);
  tied.tied_embeddings = true;
  EXPECT_EQ(parameter_count(tied, false) + 24 * 18 * 64, 494'032'768);
}

/// Model FLOPs of training on one sequence without a prompt.
double training_flop(std::int64_t tokens) {
  WorkloadConfig config = example_config();
  config.workload.batch_size = 1;
  config.workload.context_length = 0;
  config.workload.generation_length = tokens;
  config.workload.gen_quantiles.clear();
  return vertex_model_flop(actor_training(), config);
}

TEST(Oracle, Row02TrainingFlopOfLlama7B) {
  // verl counts s² attended pairs / 2 where a causal mask has s(s + 1)/2: 6·a·d·L·Σs more here.
  const double diagonal = 6.0 * 4096 * 32 * (512 + 1024 + 2048);
  EXPECT_EQ(training_flop(512) + training_flop(1024) + training_flop(2048),
            146'407'918'927'872.0 + diagonal);
}

/// Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", Table 2:
/// bytes a layer of a GPT with dropout and without a fused attention kernel.
struct Korthikanti {
  double s = 2048.0;
  double b = 1.0;
  double h = 0.0;
  double a = 0.0;
  double sbh() const { return s * b * h; }
  double scores() const { return 5.0 * a * s / h; }
  double tensor(int tp) const { return sbh() * (10.0 + 24.0 / tp + scores() / tp); }
  double sequence(int tp) const { return sbh() * (34.0 + scores()) / tp; }
  double selective(int tp) const { return 34.0 * sbh() / tp; }
  double full() const { return 2.0 * sbh(); }
};

TEST(Oracle, Row03ActivationsOfALayerOf175B) {
  const Korthikanti gpt3{.h = 12288, .a = 96};
  EXPECT_DOUBLE_EQ(gpt3.tensor(1) / kMib, 2736);
  EXPECT_DOUBLE_EQ(gpt3.tensor(8) / kMib, 552);
  EXPECT_DOUBLE_EQ(gpt3.sequence(8) / kMib, 342);
  EXPECT_DOUBLE_EQ(gpt3.selective(8) / kMib, 102);
  EXPECT_DOUBLE_EQ(gpt3.full() / kMib, 48);

  // Ours has a fused kernel and no dropout: without the scores and two one-byte masks, with the
  // softmax statistics.
  WorkloadConfig config = example_config();
  config.models.fill(gpt(1, 12288, 96));
  config.workload.batch_size = 1;
  config.workload.context_length = 1536;
  for (const int tp : {1, 8}) {
    const double ours =
        vertex_memory(actor_training(), plan_on(1, tp, {1, 1, tp}), config, example_profile())
            .activations;
    const double theirs = gpt3.tensor(tp) - gpt3.sbh() * gpt3.scores() / tp - 2.0 * gpt3.sbh();
    EXPECT_DOUBLE_EQ(ours, theirs + 4.0 * 2048 * 96 / tp) << "tp " << tp;
  }
  config.optimizer.recompute = Recompute::kFull;
  config.models.fill(gpt(96, 12288, 96));
  const double kept =
      vertex_memory(actor_training(), plan_on(1, 1, {1, 1, 1}), config, example_profile())
          .activations;
  const double one_layer = gpt3.selective(1) - 2.0 * gpt3.sbh() + 4.0 * 2048 * 96;
  EXPECT_DOUBLE_EQ(kept, 96 * gpt3.full() + one_layer);
}

TEST(Oracle, Row04ActivationsOfTheFirstStage) {
  // The same paper, Figure 1, tp 8: without recomputation, and selective with sequence
  // parallelism. Interleaved pipelines of v chunks keep 1 + (pp − 1)/(pp·v) times the layers.
  struct Case {
    Korthikanti model;
    int layers;
    double interleaved;
    double none_gib;
    double selective_gib;
  };
  const Case cases[] = {
      {{.b = 4, .h = 6144, .a = 64}, 48, 1.0, 59.25, 9.5625},
      {{.b = 1, .h = 12288, .a = 96}, 96, 1.0 + 7.0 / 24, 66.84375, 12.3515625},
      {{.b = 1, .h = 20480, .a = 128}, 105, 1.0 + 34.0 / 105, 114.0234, 23.0762},
      {{.b = 1, .h = 25600, .a = 160}, 128, 1.0, 131.25, 26.5625},
  };
  for (const Case& c : cases) {
    const double layers = c.layers * c.interleaved;
    EXPECT_NEAR(layers * c.model.tensor(8) / kGib, c.none_gib, 5e-5);
    EXPECT_NEAR(layers * c.model.selective(8) / kGib, c.selective_gib, 5e-5);
  }
  // Ours for 1T on 64 stages: the first keeps 64 micro-batches of its two layers, 128 layers'
  // worth.
  WorkloadConfig config = example_config();
  config.models.fill(gpt(128, 25600, 160));
  config.workload.batch_size = 512;
  config.workload.context_length = 1536;
  const double ours =
      vertex_memory(actor_training(), plan_on(64, 8, {1, 64, 8}, 512), config, example_profile())
          .activations;
  const Korthikanti& model = cases[3].model;
  const double layer = model.tensor(8) - model.sbh() * (model.scores() / 8 + 2.0);
  EXPECT_DOUBLE_EQ(ours, 128 * (layer + 4.0 * 2048 * 160 / 8));
}

/// FLOPs of a batch by part, from our parameter functions, with Megatron's conventions: logits of
/// every token, attention without a causal mask.
struct FullAttentionFlop {
  double linear = 0.0;
  double attention = 0.0;
  double head = 0.0;
  double model() const { return 3.0 * (linear + attention + head); }
  double recomputed() const { return 4.0 * (linear + attention) + 3.0 * head; }
};

FullAttentionFlop full_attention_flop(const ModelSpec& model, double sequences) {
  const double s = 2048.0;
  const double layers = static_cast<double>(model.layers);
  return {.linear = 2.0 * sequences * s * layers * layer_matrix_elements(model, 1),
          .attention = 4.0 * static_cast<double>(model.num_heads * model.head_dim) * layers *
                       sequences * s * s,
          .head = 2.0 * sequences * s * head_elements(model, Head::kLanguageModel, 1)};
}

TEST(Oracle, Row05UtilisationOfMegatron) {
  // Megatron-LM's table for sequence parallelism and selective recomputation: A100, 312 TFLOP/s.
  struct Case {
    ModelSpec model;
    int gpus;
    double batch;
    double seconds;
    double mfu;
    double hfu;
  };
  const Case cases[] = {{gpt(48, 6144, 64), 8, 4, 1.10, 41.7, 43.8},
                        {gpt(96, 12288, 96), 64, 64, 13.75, 51.4, 52.8},
                        {gpt(105, 20480, 128), 280, 280, 37.83, 56.0, 57.0},
                        {gpt(128, 25600, 160), 512, 512, 71.49, 56.3, 57.0}};
  for (const Case& c : cases) {
    const FullAttentionFlop flop = full_attention_flop(c.model, c.batch);
    const double available = c.gpus * 312e12 * c.seconds / 100;
    EXPECT_NEAR(flop.model() / available, c.mfu, 0.06);
    // The paper's hardware FLOPs count the attention core six times; one repetition is four.
    EXPECT_NEAR((flop.model() + 3.0 * flop.attention) / available, c.hfu, 0.06);
  }
  // 175B with one repetition: 51.9 %.
  const FullAttentionFlop flop = full_attention_flop(gpt(96, 12288, 96), 64);
  EXPECT_NEAR((flop.model() + flop.attention) / (64 * 312e12 * 13.75), 0.519, 6e-4);
}

TEST(Oracle, Row06IterationsOf1TAnd175B) {
  // Narayanan et al., SC21, with full recomputation.
  const double iteration_s =
      full_attention_flop(gpt(128, 25600, 160), 3072).recomputed() / (3072 * 163e12);
  EXPECT_NEAR(iteration_s, 102.6, 0.05);
  const double token_flop = full_attention_flop(gpt(96, 12288, 96), 1).recomputed() / 2048;
  EXPECT_NEAR(300e9 * token_flop / (384 * 153e12) / 86400, 84.7, 0.06);
}

TEST(Oracle, Row07IterationsOf530B) {
  // MT-NLG, batch 1920: 60.1, 50.2 and 44.4 s were measured.
  const double flop = full_attention_flop(gpt(105, 20480, 128), 1920).recomputed();
  EXPECT_NEAR(flop / (2240 * 126e12), 59.97, 0.01);
  EXPECT_NEAR(flop / (2800 * 121e12), 49.96, 0.01);
  EXPECT_NEAR(flop / (3360 * 113e12), 44.58, 0.01);
}

TEST(Oracle, Row08BytesOfAnAllReduceOverEight) {
  // nccl-tests: 2(p − 1)/p = 1.75.
  const AlphaBeta cost = all_reduce_cost({{.size = 8, .per_node = 8}}, example_profile(), 1e6);
  EXPECT_DOUBLE_EQ(cost.beta_s_per_byte / example_profile().collective[0].beta_s_per_byte, 1.75);
}

TEST(Oracle, Row08LatencyOfNcclRings) {
  HardwareProfile profile = example_profile();
  // NCCL, 8 GPUs in a node: Simple 8.4 + 14 · 3.4 = 56.0 µs, LL 6.6 + 14 · 0.6 = 15.0 µs.
  profile.collective[0].alpha_s = 8.4e-6;
  profile.alpha_step_s[0] = 3.4e-6;
  EXPECT_NEAR(all_reduce_cost({{.size = 8, .per_node = 8}}, profile, 8.0).alpha_s, 56.0e-6, 1e-12);
  profile.collective[0].alpha_s = 6.6e-6;
  profile.alpha_step_s[0] = 0.6e-6;
  EXPECT_NEAR(all_reduce_cost({{.size = 8, .per_node = 8}}, profile, 8.0).alpha_s, 15.0e-6, 1e-12);
}

TEST(Oracle, Row09OneForwardOneBackward) {
  // pp 8, m 64, f 1, b 2: (64 + 7) · 3 = 213, the bubble is 21/192 = 10.94 %.
  const StageTimes uniform{{3.0, 0.0}, 8 * 3.0};
  const TaskTime time = pipeline_time(uniform, uniform, cut_micro_batches(64, 64));
  EXPECT_DOUBLE_EQ(time.total_s, 213.0);
  EXPECT_NEAR(time.bubble_s / time.compute_s, 0.1094, 5e-5);
}

TEST(Oracle, Row10KvCacheOfAToken) {
  // Bytes a token: 524 288 (7B), 327 680 (70B), 131 072 (Llama-3-8B).
  WorkloadConfig config = example_config();
  const auto per_token = [&](const ModelSpec& model, Parallelism p) {
    config.models.fill(model);
    const int gpus = p.gpus();
    return vertex_memory(generation(), plan_on(1, gpus, p), config, example_profile()).kv_cache /
           (64.0 / p.dp * 640);
  };
  EXPECT_DOUBLE_EQ(per_token(llama_2_7b(), {1, 1, 1}), 524288);
  EXPECT_DOUBLE_EQ(per_token(llama_2_70b(), {1, 1, 1}), 327680);
  EXPECT_DOUBLE_EQ(per_token(llama_3_8b(), {1, 1, 1}), 131072);
  EXPECT_DOUBLE_EQ(per_token(llama_2_70b(), {1, 1, 8}), 327680 / 8.0);
  EXPECT_DOUBLE_EQ(per_token(llama_2_70b(), {1, 1, 16}), 327680 / 8.0);  // replicated
  EXPECT_DOUBLE_EQ(per_token(llama_2_7b(), {2, 2, 1}), 524288 / 2.0);
  config.workload.context_length = 129;  // 641 tokens take 41 pages of 16
  EXPECT_DOUBLE_EQ(per_token(llama_2_7b(), {1, 1, 1}) * 640, 524288.0 * 656);
}

TEST(Oracle, Row12ReshardingOnTheSameGpus) {
  // tp 8 · pp 4 → tp 4 · pp 1 on the same GPUs: rank 0 receives 1/4 − 1/32 of the model.
  ModelSpec model = llama_2_7b();
  model.vocab_size = 1;
  const double whole = static_cast<double>(parameter_count(model, false));
  const double need = common_elements(model, Head::kLanguageModel, {{8, 1, 4}, 0}, {{8, 1, 4}, 0});
  const double have = common_elements(model, Head::kLanguageModel, {{1, 4, 8}, 0}, {{8, 1, 4}, 0});
  EXPECT_NEAR((need - have) / whole, 0.21875, 1e-4);
}

TEST(Oracle, Row13StaticBytesOf22BAnd175B) {
  // 18 · 12Lh²/(tp·pp): Megatron's 22B (48 layers, 6144, tp 8) and 175B (96, 12288, tp 8, pp 8).
  WorkloadConfig config = example_config();
  config.optimizer.zero_stage = 0;
  const auto gib = [&](std::int64_t layers, std::int64_t hidden, std::int64_t heads, int pp) {
    ModelSpec model = model_of(layers, hidden, 4 * hidden, 1, heads, heads);
    model.gated_ffn = false;
    config.models.fill(model);
    const double matrices = static_cast<double>(layers) / pp * layer_matrix_elements(model, 8);
    const MemoryUse use =
        vertex_memory(actor_training(), plan_on(pp, 8, {1, pp, 8}), config, example_profile());
    // Beside the matrices: norms, and a vocabulary of one token.
    EXPECT_NEAR((use.weights + use.optimizer) / (18 * matrices), 1.0, 2e-3);
    return 18 * matrices / kGib;
  };
  EXPECT_DOUBLE_EQ(gib(48, 6144, 64, 1), 45.5625);
  EXPECT_DOUBLE_EQ(gib(96, 12288, 96, 8), 45.5625);
}

TEST(Oracle, ActivationsOfALlamaLayerAsMeasured) {
  // Hetu-Galvatron's profile of a 7B layer, 2048 tokens of 4-byte elements: 514.56 MiB, and with
  // sequence parallelism 273.3, 136.9, 68.3.
  WorkloadConfig config = example_config();
  config.models.fill(model_of(1, 4096, 11008, 32000, 32, 32));
  config.workload.batch_size = 1;
  config.workload.context_length = 1536;
  config.optimizer.dtype = TrainDtype::kFp32;
  config.optimizer.sequence_parallel = true;
  const auto mib = [&](int tp) {
    return vertex_memory(actor_training(), plan_on(1, tp, {1, 1, tp}), config, example_profile())
               .activations /
           kMib;
  };
  const double statistics = 4.0 * 2048 * 32 / kMib;  // of the softmax
  EXPECT_DOUBLE_EQ(mib(1), 514.0 + statistics);
  EXPECT_DOUBLE_EQ(mib(2), 273.0 + statistics / 2);
  EXPECT_DOUBLE_EQ(mib(4), 136.5 + statistics / 4);
  EXPECT_DOUBLE_EQ(mib(8), 68.25 + statistics / 8);
  EXPECT_NEAR(mib(1) / 514.56, 1.0, 2e-3);
  EXPECT_NEAR(mib(2) / 273.3, 1.0, 2e-3);
  EXPECT_NEAR(mib(4) / 136.9, 1.0, 4e-3);
}

}  // namespace
}  // namespace rpeg
