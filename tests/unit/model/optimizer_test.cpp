#include "rpeg/model/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rpeg {
namespace {

TEST(AdamW, MatchesTwoStepsByHand) {
  AdamWOptions options;
  options.learning_rate = 0.1;
  options.beta1 = 0.5;
  options.beta2 = 0.75;
  options.eps = 0.0;
  options.weight_decay = 0.2;
  AdamWState state;
  std::vector<float> weights = {1.0F};
  // g = 4: m = 2, v = 4; corrected m = 4, v = 16: w = 1 - 0.1 (4 / 4 + 0.2).
  adamw_update(options, std::vector<float>{4.0F}, 1.0, state, weights);
  EXPECT_EQ(state.step, 1);
  EXPECT_FLOAT_EQ(state.m[0], 2.0F);
  EXPECT_FLOAT_EQ(state.v[0], 4.0F);
  EXPECT_FLOAT_EQ(weights[0], 0.88F);
  // g = 4 * 0.5 = 2: m = 1 + 1 = 2, v = 3 + 1 = 4; corrected m = 2 / 0.75, v = 4 / 0.4375.
  adamw_update(options, std::vector<float>{4.0F}, 0.5, state, weights);
  EXPECT_FLOAT_EQ(
      weights[0],
      static_cast<float>(0.88 - 0.1 * ((2.0 / 0.75) / std::sqrt(4.0 / 0.4375) + 0.2 * 0.88)));
}

TEST(AdamW, AddsEpsOutsideTheRoot) {
  AdamWOptions options;
  options.learning_rate = 1.0;
  options.eps = 3.0;
  AdamWState state;
  std::vector<float> weights(100, 0.0F);
  adamw_update(options, std::vector<float>(100, 1.0F), 1.0, state, weights);
  for (const float weight : weights) {
    EXPECT_NEAR(weight, -1.0F / (1.0F + 3.0F), 1e-6F);
  }
}

TEST(AdamW, MatchesAScalarReferenceOverManySteps) {
  AdamWOptions options;
  options.learning_rate = 1e-2;
  options.weight_decay = 0.1;
  AdamWState state;
  std::vector<float> weights(130, 1.0F);
  std::vector<double> w(130, 1.0);
  std::vector<double> m(130, 0.0);
  std::vector<double> v(130, 0.0);
  for (int step = 1; step <= 20; ++step) {
    std::vector<float> gradient;
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = std::sin(static_cast<double>(i) + step);
      gradient.push_back(static_cast<float>(g));
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      w[i] -= 1e-2 * (m[i] / (1.0 - std::pow(0.9, step)) /
                          (std::sqrt(v[i] / (1.0 - std::pow(0.95, step))) + 1e-8) +
                      0.1 * w[i]);
    }
    adamw_update(options, gradient, 1.0, state, weights);
  }
  for (std::size_t i = 0; i < w.size(); ++i) {
    EXPECT_NEAR(weights[i], w[i], 1e-6);
  }
}

TEST(GradientNorm, IsTheRootOfTheSumOfSquares) {
  EXPECT_DOUBLE_EQ(gradient_norm(std::vector<float>{3.0F, -4.0F}), 5.0);
  EXPECT_DOUBLE_EQ(gradient_norm(std::vector<float>(10000, 0.5F)), 50.0);
  EXPECT_DOUBLE_EQ(gradient_norm({}), 0.0);
}

}  // namespace
}  // namespace rpeg
