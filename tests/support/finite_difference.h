#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "rpeg/base/rng.h"

namespace rpeg {

/// Returns `count` numbers, uniform in [-1, 1).
inline std::vector<double> random_values(std::uint64_t seed, std::int64_t count) {
  Rng rng(seed);
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(2.0 * rng.uniform() - 1.0);
  }
  return values;
}

/// Sum of products: a loss that is linear in what a kernel computes, with gradient `weights`.
inline double weighted_sum(std::span<const double> weights, std::span<const double> values) {
  double sum = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i] * values[i];
  }
  return sum;
}

/// Expects `gradient` to be that of `loss` at `x`, by central differences with step 1e-5 (error
/// about 1e-10 from the third derivative and 1e-11 from rounding, for values of order 1). Looks at
/// every `stride`-th element.
template <typename Loss>
void expect_gradient(std::vector<double> x,
                     std::span<const double> gradient,
                     Loss loss,
                     std::size_t stride = 1,
                     double tolerance = 1e-8) {
  constexpr double kStep = 1e-5;
  ASSERT_EQ(x.size(), gradient.size());
  for (std::size_t i = 0; i < x.size(); i += stride) {
    const double at = x[i];
    x[i] = at + kStep;
    const double above = loss(x);
    x[i] = at - kStep;
    const double below = loss(x);
    x[i] = at;
    const double expected = (above - below) / (2.0 * kStep);
    EXPECT_NEAR(gradient[i], expected, tolerance * (1.0 + std::abs(expected))) << "element " << i;
  }
}

}  // namespace rpeg
