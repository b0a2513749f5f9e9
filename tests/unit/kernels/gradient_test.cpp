// Every backward kernel against central finite differences in float64.

#include <gtest/gtest.h>

#include "rpeg/kernels/embedding.h"
#include "rpeg/kernels/linear.h"
#include "rpeg/kernels/rmsnorm.h"
#include "rpeg/kernels/rope.h"
#include "rpeg/kernels/silu_gate.h"
#include "rpeg/kernels/token_scores.h"
#include "support/finite_difference.h"

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
  rope_table(100.0, 6, 5, cosine.data(), sine.data());
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
  embedding_backward(tokens, 4, dy.data(), dtable.data());
  expect_gradient(table, dtable, [&](const Values& table_) {
    Values y(3 * 4);
    embedding_forward(tokens, 4, table_.data(), y.data());
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
    Values dlogits = logits;
    token_scores_backward(shape, targets, d_logprob.data(), d_entropy.data(), dlogits.data());
    expect_gradient(logits, dlogits, [&](Values logits_) {
      Values logprob(3);
      Values entropy(3);
      token_scores_forward(shape, targets, logits_.data(), logprob.data(), entropy.data());
      return weighted_sum(d_logprob, logprob) + weighted_sum(d_entropy, entropy);
    });
  }
}

}  // namespace
}  // namespace rpeg::cpu
