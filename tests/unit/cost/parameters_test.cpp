#include <gtest/gtest.h>

#include "cost/shard.h"
#include "unit/cost/example.h"

namespace rpeg {
namespace {

TEST(ParameterCount, OfATiedCriticKeepsTheEmbedding) {
  ModelSpec tied = llama_2_7b();
  tied.tied_embeddings = true;
  EXPECT_EQ(parameter_count(tied, true), parameter_count(tied, false) + 4096);
}

TEST(StageElements, SumToTheModelWhenNothingIsReplicated) {
  for (const Head head : {Head::kLanguageModel, Head::kScalar}) {
    double sum = 0.0;
    for (int stage = 0; stage < 5; ++stage) {
      sum += stage_elements(llama_2_70b(), head, {1, 5, 1}, stage);
    }
    EXPECT_EQ(sum, static_cast<double>(parameter_count(llama_2_70b(), has_scalar(head))));
  }
}

TEST(StageElements, ReplicateKvHeadsBeyondTheirNumber) {
  // 70B: 8 KV heads of 128. At tp 16 a rank still holds one head of K and of V.
  const double divided = (2.0 * 8192 * 64 * 128 + 3.0 * 8192 * 28672) / 16;
  EXPECT_EQ(layer_matrix_elements(llama_2_70b(), 16), divided + 2.0 * 8192 * 128);
  EXPECT_EQ(local_kv_heads(llama_2_70b(), 8), 1.0);
  EXPECT_EQ(local_kv_heads(llama_2_70b(), 4), 2.0);
}

TEST(StageElements, CountATiedTableOnBothEndsOfAPipeline) {
  ModelSpec tied = llama_2_7b();
  tied.tied_embeddings = true;
  const double table = 32000.0 * 4096;
  const auto whole = static_cast<double>(parameter_count(tied, false));
  EXPECT_EQ(stage_elements(tied, Head::kLanguageModel, {1, 1, 1}, 0), whole);
  EXPECT_EQ(stage_elements(tied, Head::kLanguageModel, {1, 2, 1}, 0) +
                stage_elements(tied, Head::kLanguageModel, {1, 2, 1}, 1),
            whole + table);
}

TEST(PaddedVocab, IsAMultipleOf128TimesTp) {
  EXPECT_EQ(padded_vocab(model_of(1, 8, 8, 32000, 1, 1), 8), 32768.0);  // 32 · 1024
  EXPECT_EQ(padded_vocab(model_of(1, 8, 8, 30, 1, 1), 1), 30.0);
}

TEST(VertexModelFlop, GivesTheCriticNoVocabularyAndTheRewardOneRow) {
  const WorkloadConfig config = example_config();
  const double lm = 64 * 2.0 * expected_length(config.workload) * 4096 * 32000;
  const double scalar = 64 * 2.0 * expected_length(config.workload) * 4096;
  const double difference =
      vertex_model_flop(reference(), config) - vertex_model_flop(value(), config);
  EXPECT_NEAR(difference / (lm - scalar), 1.0, 1e-12);
  EXPECT_NEAR((vertex_model_flop(value(), config) - vertex_model_flop(reward(), config)) /
                  (scalar - 64 * 2.0 * 4096),
              1.0,
              1e-3);  // the difference of two numbers 10⁸ times larger
}

}  // namespace
}  // namespace rpeg
