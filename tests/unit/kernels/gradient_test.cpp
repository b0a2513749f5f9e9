// Every backward kernel against central finite differences in float64.

#include <gtest/gtest.h>

#include <algorithm>

#include "rpeg/kernels/add.h"
#include "rpeg/kernels/embedding.h"
#include "rpeg/kernels/head_norm.h"
#include "rpeg/kernels/linear.h"
#include "rpeg/kernels/rmsnorm.h"
#include "rpeg/kernels/rope.h"
#include "rpeg/kernels/silu_gate.h"
#include "rpeg/kernels/token_scores.h"
#include "support/finite_difference.h"
#include "support/whole_scores.h"

namespace rpeg::cpu {
namespace {

using Values = std::vector<double>;

TEST(LinearGradient, MatchesFiniteDifferences) {
  const LinearShape shape{5, 7, 3};
  const Values x = random_values(1, 5 * 3);
  const Values w = random_values(2, 7 * 3);
  const Values dy = random_values(3, 5 * 7);
  const auto loss = [&](const Values& x_, const Values& w_) {
    Values y(5 * 7);
    linear_forward(shape, x_.data(), w_.data(), y.data());
    return weighted_sum(dy, y);
  };
  Values dx(x.size());
  linear_backward_input(shape, dy.data(), w.data(), dx.data());
  expect_gradient(x, dx, [&](const Values& x_) { return loss(x_, w); });
  Values dw(w.size());
  linear_backward_weight(shape, dy.data(), x.data(), dw.data());
  expect_gradient(w, dw, [&](const Values& w_) { return loss(x, w_); });
}

TEST(LinearGradient, OfWeightsIsAddedToWhatIsThere) {
  const LinearShape shape{1, 1, 2};
  const Values x = {3.0, 5.0};
  const Values dy = {2.0};
  Values dw = {10.0, 20.0};
  linear_backward_weight(shape, dy.data(), x.data(), dw.data());
  EXPECT_EQ(dw, (Values{10.0 + 2.0 * 3.0, 20.0 + 2.0 * 5.0}));
}

TEST(RmsNormGradient, MatchesFiniteDifferences) {
  const RmsNormShape shape{4, 6, 1e-2};
  const Values x = random_values(1, 4 * 6);
  const Values w = random_values(2, 6);
  const Values dy = random_values(3, 4 * 6);
  Values inv_rms(4);
  const auto loss = [&](const Values& x_, const Values& w_) {
    Values y(x_.size());
    rmsnorm_forward(shape, x_.data(), w_.data(), y.data(), inv_rms.data());
    return weighted_sum(dy, y);
  };
  loss(x, w);
  const Values saved = inv_rms;
  Values dx(x.size(), 0.5);  // added to what is there
  Values dw(w.size(), -0.25);
  rmsnorm_backward(shape, x.data(), w.data(), saved.data(), dy.data(), dx.data(), dw.data());
  for (double& value : dx) {
    value -= 0.5;
  }
  for (double& value : dw) {
    value += 0.25;
  }
  expect_gradient(x, dx, [&](const Values& x_) { return loss(x_, w); });
  expect_gradient(w, dw, [&](const Values& w_) { return loss(x, w_); });
}

TEST(RopeGradient, MatchesFiniteDifferences) {
  const RopeShape shape{3, 2, 6, 15};  // three elements of each row are not heads
  const std::vector<std::int32_t> positions = {0, 4, 2};
  Values cosine(5 * 3);
  Values sine(5 * 3);
  rope_table(rope_frequencies(100.0, 6), 5, cosine.data(), sine.data());
  const Values x = random_values(1, 3 * 15);
  const Values dy = random_values(2, 3 * 15);
  Values dx = dy;
  rope_backward(shape, positions, cosine.data(), sine.data(), dx.data());
  expect_gradient(x, dx, [&](Values x_) {
    rope_forward(shape, positions, cosine.data(), sine.data(), x_.data());
    return weighted_sum(dy, x_);
  });
}

TEST(SiluGateGradient, MatchesFiniteDifferences) {
  const Values x = random_values(1, 3 * 10);
  const Values dy = random_values(2, 3 * 5);
  Values dx(x.size());
  silu_gate_backward(3, 5, x.data(), dy.data(), dx.data());
  expect_gradient(x, dx, [&](const Values& x_) {
    Values y(3 * 5);
    silu_gate_forward(3, 5, x_.data(), y.data());
    return weighted_sum(dy, y);
  });
}

TEST(EmbeddingGradient, SumsTheRowsOfRepeatedTokens) {
  const std::vector<std::int32_t> tokens = {2, 0, 2};
  const Values table = random_values(1, 3 * 4);
  const Values dy = random_values(2, 3 * 4);
  Values dtable(table.size());
  embedding_backward({4, 0, 3}, tokens, dy.data(), dtable.data());
  expect_gradient(table, dtable, [&](const Values& table_) {
    Values y(3 * 4);
    embedding_forward({4, 0, 3}, tokens, table_.data(), y.data());
    return weighted_sum(dy, y);
  });
}

TEST(TokenScoresGradient, MatchesFiniteDifferencesInBothScores) {
  const ScoreShape shape{3, 7, 0.7};
  const std::vector<std::int32_t> targets = {6, 0, 3};
  const Values logits = random_values(1, 3 * 7);
  for (const bool with_entropy : {false, true}) {
    const Values d_logprob = random_values(2, 3);
    const Values d_entropy = with_entropy ? random_values(3, 3) : Values(3, 0.0);
    WholeScores scores(shape, targets, logits);
    token_scores_backward(
        shape, targets, scores.sums.data(), d_logprob.data(), d_entropy.data(), scores.z.data());
    expect_gradient(logits, scores.z, [&](const Values& logits_) {
      const WholeScores at(shape, targets, logits_);
      return weighted_sum(d_logprob, at.logprob) + weighted_sum(d_entropy, at.entropy);
    });
  }
}

TEST(TokenScoresGradient, OfPartsOfTheVocabularyIsThatOfTheWhole) {
  const ScoreShape whole{2, 7, 0.7};
  const std::vector<std::int32_t> targets = {4, 1};
  const Values logits = random_values(1, 2 * 7);
  const Values d_logprob = random_values(2, 2);
  const Values d_entropy = random_values(3, 2);
  WholeScores scores(whole, targets, logits);
  const Values maxima = {*std::max_element(logits.begin(), logits.begin() + 7),
                         *std::max_element(logits.begin() + 7, logits.end())};
  std::vector<Values> parts;
  Values sums(scores.sums.size());
  const std::vector<std::int64_t> cuts = {0, 3, 3, 7};  // the second rank has no token
  const auto part_shape = [&](std::size_t rank) {
    return ScoreShape{2, cuts[rank + 1] - cuts[rank], 0.7, cuts[rank]};
  };
  for (std::size_t rank = 0; rank < 3; ++rank) {
    Values& part = parts.emplace_back();
    for (std::ptrdiff_t t = 0; t < 2; ++t) {
      part.insert(
          part.end(), logits.begin() + 7 * t + cuts[rank], logits.begin() + 7 * t + cuts[rank + 1]);
    }
    Values mine(sums.size());
    token_sums(part_shape(rank), targets, maxima.data(), part.data(), mine.data());
    add(static_cast<std::int64_t>(sums.size()), mine.data(), sums.data());
  }
  token_scores_backward(
      whole, targets, scores.sums.data(), d_logprob.data(), d_entropy.data(), scores.z.data());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const ScoreShape shape = part_shape(rank);
    Values& part = parts[rank];
    token_scores_backward(
        shape, targets, sums.data(), d_logprob.data(), d_entropy.data(), part.data());
    for (std::size_t i = 0; i < part.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / shape.vocabulary;
      const auto column = static_cast<std::int64_t>(i) % shape.vocabulary + shape.first_token;
      EXPECT_NEAR(part[i], scores.z[static_cast<std::size_t>(row * 7 + column)], 1e-14);
    }
  }
}

TEST(EmbeddingGradient, OfSomeRowsIgnoresOtherTokens) {
  const std::vector<std::int32_t> tokens = {2, 0, 3};
  const EmbeddingShape shape{1, 2, 2};  // rows 2 and 3
  const Values table = {20.0, 30.0};
  Values y(3);
  embedding_forward(shape, tokens, table.data(), y.data());
  EXPECT_EQ(y, (Values{20.0, 0.0, 30.0}));
  const Values dy = {1.0, 10.0, 100.0};
  Values dtable(2);
  embedding_backward(shape, tokens, dy.data(), dtable.data());
  EXPECT_EQ(dtable, (Values{1.0, 100.0}));
}

TEST(BiasGradient, MatchesFiniteDifferences) {
  const Values bias = random_values(1, 4);
  const Values dy = random_values(2, 3 * 4);
  Values dbias(4, 0.5);  // added to what is there
  add_bias_backward(3, 4, dy.data(), dbias.data());
  for (double& value : dbias) {
    value -= 0.5;
  }
  expect_gradient(bias, dbias, [&](const Values& bias_) {
    Values y(3 * 4, 1.0);
    add_bias(3, 4, bias_.data(), y.data());
    return weighted_sum(dy, y);
  });
}

TEST(HeadNormGradient, MatchesFiniteDifferences) {
  const HeadNormShape shape{3, 2, 1, 4, 14, 1e-2};  // two elements of each row are not heads
  const Values x = random_values(1, 3 * 14);
  const Values query_weight = random_values(2, 4);
  const Values key_weight = random_values(3, 4);
  const Values dy = random_values(4, 3 * 14);
  Values raw(3 * 12);
  Values inv_rms(3 * 3);
  const auto loss = [&](Values x_, const Values& query, const Values& key) {
    head_norm_forward(shape, query.data(), key.data(), x_.data(), raw.data(), inv_rms.data());
    return weighted_sum(dy, x_);
  };
  loss(x, query_weight, key_weight);
  const Values saved_raw = raw;
  const Values saved_rms = inv_rms;
  Values dx = dy;
  Values dquery(4, 0.5);  // added to what is there
  Values dkey(4, 0.5);
  head_norm_backward(shape,
                     query_weight.data(),
                     key_weight.data(),
                     saved_raw.data(),
                     saved_rms.data(),
                     dx.data(),
                     dquery.data(),
                     dkey.data());
  for (std::size_t i = 0; i < 4; ++i) {
    dquery[i] -= 0.5;
    dkey[i] -= 0.5;
  }
  expect_gradient(x, dx, [&](const Values& at) { return loss(at, query_weight, key_weight); });
  expect_gradient(query_weight, dquery, [&](const Values& at) { return loss(x, at, key_weight); });
  expect_gradient(key_weight, dkey, [&](const Values& at) { return loss(x, query_weight, at); });
}

}  // namespace
}  // namespace rpeg::cpu
