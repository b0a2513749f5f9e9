#include "rpeg/model/transformer.h"

#include <gtest/gtest.h>

#include "rpeg/base/error.h"
#include "support/finite_difference.h"
#include "support/tiny_model.h"

namespace rpeg {
namespace {

using Values = std::vector<double>;

class TransformerGradient : public testing::TestWithParam<bool> {};

TEST_P(TransformerGradient, OfScoresMatchesFiniteDifferences) {
  const TinyModel<double> tiny(Head::kLanguageModel, /*tied=*/GetParam());
  const PackedBatch batch = tiny_batch();
  const double temperature = 0.8;
  const Values d_logprob = random_values(1, batch.token_count());
  const Values d_entropy = random_values(2, batch.token_count());
  const auto loss = [&](const Values& weights) {
    Activations<double> activations;
    TokenScores<double> scores;
    forward_scores(tiny.with_weights(weights), batch, temperature, activations, scores);
    return weighted_sum(d_logprob, scores.logprob) + weighted_sum(d_entropy, scores.entropy);
  };
  Activations<double> activations;
  TokenScores<double> scores;
  forward_scores(tiny.model(), batch, temperature, activations, scores);
  Values gradient(tiny.weights.size());
  backward_scores<double>(
      tiny.model(), batch, temperature, activations, d_logprob, d_entropy, gradient);
  expect_gradient(tiny.weights, gradient, loss, 3, 1e-7);
}

INSTANTIATE_TEST_SUITE_P(TiedAndUntied, TransformerGradient, testing::Bool());

TEST(Transformer, GradientOfValuesMatchesFiniteDifferences) {
  const TinyModel<double> tiny(Head::kScalar, false);
  const PackedBatch batch = tiny_batch();
  const Values d_values = random_values(1, batch.token_count());
  const auto loss = [&](const Values& weights) {
    Activations<double> activations;
    Values values;
    forward_values(tiny.with_weights(weights), batch, activations, values);
    return weighted_sum(d_values, values);
  };
  Activations<double> activations;
  Values values;
  forward_values(tiny.model(), batch, activations, values);
  Values gradient(tiny.weights.size());
  backward_values<double>(tiny.model(), batch, activations, d_values, gradient);
  expect_gradient(tiny.weights, gradient, loss, 3, 1e-7);
}

TEST(Transformer, GradientsAddUp) {
  const TinyModel<double> tiny(Head::kLanguageModel, true);
  const PackedBatch batch = tiny_batch();
  const Values d_logprob = random_values(1, batch.token_count());
  Activations<double> activations;
  TokenScores<double> scores;
  Values gradient(tiny.weights.size());
  Values once;
  for (int pass = 0; pass < 2; ++pass) {
    forward_scores(tiny.model(), batch, 1.0, activations, scores);
    backward_scores<double>(tiny.model(), batch, 1.0, activations, d_logprob, {}, gradient);
    if (pass == 0) {
      once = gradient;
    }
  }
  for (std::size_t i = 0; i < once.size(); ++i) {
    ASSERT_NEAR(gradient[i], 2.0 * once[i], 1e-12);
  }
}

TEST(Transformer, MaskedTokensDoNotTouchTheGradient) {
  const TinyModel<double> tiny(Head::kLanguageModel, false);
  const PackedBatch batch = tiny_batch();
  Activations<double> activations;
  TokenScores<double> scores;
  forward_scores(tiny.model(), batch, 1.0, activations, scores);
  Values gradient(tiny.weights.size(), 0.5);
  Values d_logprob(batch.tokens.size(), 0.0);
  d_logprob[0] = d_logprob[5] = d_logprob[6] = 1.0;  // first tokens are predicted by nothing
  backward_scores<double>(tiny.model(), batch, 1.0, activations, d_logprob, {}, gradient);
  EXPECT_EQ(gradient, Values(tiny.weights.size(), 0.5));
}

TEST(Transformer, PackedSequencesScoreAsTheyDoAlone) {
  const TinyModel<double> tiny(Head::kLanguageModel, false);
  const PackedBatch batch = tiny_batch();
  Activations<double> activations;
  TokenScores<double> packed;
  forward_scores(tiny.model(), batch, 0.7, activations, packed);
  for (std::size_t i = 0; i + 1 < batch.starts.size(); ++i) {
    PackedBatch alone;
    const auto first = static_cast<std::size_t>(batch.starts[i]);
    const auto count = static_cast<std::size_t>(batch.starts[i + 1]) - first;
    append_sequence(alone, std::span(batch.tokens).subspan(first, count));
    TokenScores<double> scores;
    forward_scores(tiny.model(), alone, 0.7, activations, scores);
    EXPECT_EQ(scores.logprob[0], 0.0);
    EXPECT_EQ(scores.entropy[0], 0.0);
    for (std::size_t t = 0; t < count; ++t) {
      EXPECT_NEAR(packed.logprob[first + t], scores.logprob[t], 1e-13);
      EXPECT_NEAR(packed.entropy[first + t], scores.entropy[t], 1e-13);
    }
  }
}

TEST(Transformer, ScoresAreTheLogSoftmaxOfTheLogits) {
  const TinyModel<double> tiny(Head::kLanguageModel, true);
  const PackedBatch batch = tiny_batch();
  const double temperature = 1.5;
  Activations<double> activations;
  TokenScores<double> scores;
  forward_scores(tiny.model(), batch, temperature, activations, scores);
  const Values logits = forward_logits(tiny.model(), batch);
  const auto vocabulary = static_cast<std::size_t>(tiny.spec.vocab_size);
  for (const std::size_t t : {1U, 4U, 9U}) {
    double sum = 0.0;
    for (std::size_t j = 0; j < vocabulary; ++j) {
      sum += std::exp(logits[(t - 1) * vocabulary + j] / temperature);
    }
    const auto token = static_cast<std::size_t>(batch.tokens[t]);
    EXPECT_NEAR(scores.logprob[t],
                logits[(t - 1) * vocabulary + token] / temperature - std::log(sum),
                1e-13);
  }
}

TEST(Transformer, FloatRepeatsBitForBitWithFreshBuffers) {
  const TinyModel<float> tiny(Head::kLanguageModel, true);
  const PackedBatch batch = tiny_batch();
  const std::vector<float> d_logprob(batch.tokens.size(), 0.25F);
  std::vector<float> first;
  for (std::size_t shift = 0; shift < 4; ++shift) {
    // Weights and gradient at other addresses, buffers from other allocations.
    std::vector<float> weights(shift, 0.0F);
    weights.insert(weights.end(), tiny.weights.begin(), tiny.weights.end());
    const Model<float> model{&tiny.spec, &tiny.layout, std::span(weights).subspan(shift)};
    std::vector<float> gradient(tiny.weights.size() + shift);
    Activations<float> activations;
    activations.storage.resize(shift * 3);
    TokenScores<float> scores;
    forward_scores(model, batch, 1.0F, activations, scores);
    backward_scores<float>(
        model, batch, 1.0F, activations, d_logprob, {}, std::span(gradient).subspan(shift));
    gradient.erase(gradient.begin(), gradient.begin() + static_cast<std::ptrdiff_t>(shift));
    if (shift == 0) {
      first = gradient;
    }
    EXPECT_EQ(gradient, first) << shift;
  }
}

TEST(Transformer, TakesAnEmptyBatch) {
  const TinyModel<float> tiny(Head::kLanguageModel, false);
  Activations<float> activations;
  TokenScores<float> scores;
  forward_scores(tiny.model(), {}, 1.0F, activations, scores);
  EXPECT_TRUE(scores.logprob.empty());
  std::vector<float> gradient(tiny.weights.size());
  backward_scores<float>(tiny.model(), {}, 1.0F, activations, {}, {}, gradient);
  EXPECT_EQ(gradient, std::vector<float>(tiny.weights.size()));
}

TEST(Transformer, RefusesTokensOutsideTheVocabulary) {
  const TinyModel<float> tiny(Head::kLanguageModel, false);
  PackedBatch batch;
  append_sequence(batch, std::vector<std::int32_t>{0, 11});
  EXPECT_THROW(forward_logits(tiny.model(), batch), Error);
}

}  // namespace
}  // namespace rpeg
