// Products against plain sums in double, at shapes on both sides of every choice of a library.

#include "rpeg/kernels/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "rpeg/base/rng.h"
#include "rpeg/kernels/threads.h"

namespace rpeg::cpu {
namespace {

template <typename T>
std::vector<T> random_values(std::uint64_t seed, std::int64_t count) {
  Rng rng(seed);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) {
    value = static_cast<T>(rng.uniform() - 0.5);
  }
  return values;
}

/// Inputs of the three products of one linear layer.
template <typename T>
struct Layer {
  LinearShape shape;
  std::vector<T> x = random_values<T>(1, shape.rows* shape.in);
  std::vector<T> w = random_values<T>(2, shape.out* shape.in);
  std::vector<T> dy = random_values<T>(3, shape.rows* shape.out);
};

/// Σ_k a[i * a_row + k * a_step] b[j * b_row + k * b_step], in double.
template <typename T>
std::vector<double> sums(std::int64_t m,
                         std::int64_t n,
                         std::int64_t k,
                         const std::vector<T>& a,
                         std::int64_t a_row,
                         std::int64_t a_step,
                         const std::vector<T>& b,
                         std::int64_t b_row,
                         std::int64_t b_step) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0.0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += static_cast<double>(a[static_cast<std::size_t>(i * a_row + l * a_step)]) *
               static_cast<double>(b[static_cast<std::size_t>(j * b_row + l * b_step)]);
      }
      result.push_back(sum);
    }
  }
  return result;
}

/// The largest difference, relative to the root of the number of terms: entries are about 1/12.
template <typename T>
double difference(const std::vector<T>& values, const std::vector<double>& expected, double base) {
  double largest = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(values[i]) - base - expected[i]));
  }
  return largest;
}

template <typename T>
void expect_products(const LinearShape& shape, double tolerance) {
  SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.out << " x " << shape.in);
  const auto [rows, out, in] = shape;
  const Layer<T> layer{shape};
  const auto forward = sums(rows, out, in, layer.x, in, 1, layer.w, in, 1);
  std::vector<T> y(static_cast<std::size_t>(rows * out), T(7));  // overwritten
  linear_forward(shape, layer.x.data(), layer.w.data(), y.data());
  EXPECT_LT(difference(y, forward, 0.0), tolerance);
  std::fill(y.begin(), y.end(), T(0.5));
  linear_forward_add(shape, layer.x.data(), layer.w.data(), y.data());
  EXPECT_LT(difference(y, forward, 0.5), tolerance);
  std::vector<T> dx(static_cast<std::size_t>(rows * in), T(7));
  linear_backward_input(shape, layer.dy.data(), layer.w.data(), dx.data());
  EXPECT_LT(difference(dx, sums(rows, in, out, layer.dy, out, 1, layer.w, 1, in), 0.0), tolerance);
  std::vector<T> dw(static_cast<std::size_t>(out * in), T(0.5));
  linear_backward_weight(shape, layer.dy.data(), layer.x.data(), dw.data());
  EXPECT_LT(difference(dw, sums(out, in, rows, layer.dy, 1, out, layer.x, 1, in), 0.5), tolerance);
}

const std::vector<LinearShape>& shapes() {
  static const std::vector<LinearShape> all = {{1, 1, 1},
                                               {3, 5, 7},
                                               {1, 200, 300},
                                               {9, 1, 512},
                                               {2, 64, 64},
                                               {8, 20, 12},
                                               {33, 65, 129},
                                               {64, 172, 64},
                                               {500, 16, 12},
                                               {17, 288, 768}};
  return all;
}

TEST(Linear, FloatProductsAreTheSums) {
  for (const LinearShape& shape : shapes()) {
    // 768 products of up to 1/4 in single precision.
    expect_products<float>(shape, 2e-5);
  }
}

TEST(Linear, DoubleProductsAreTheSums) {
  for (const LinearShape& shape : shapes()) {
    expect_products<double>(shape, 1e-13);
  }
}

TEST(Linear, EqualInputsGiveEqualBits) {
  for (const LinearShape& shape : shapes()) {
    const Layer<float> layer{shape};
    std::vector<float> first(static_cast<std::size_t>(shape.rows * shape.out));
    linear_forward(shape, layer.x.data(), layer.w.data(), first.data());
    // Another thread, as ranks of one process are.
    std::vector<float> second(first.size());
    std::thread([&] {
      linear_forward(shape, layer.x.data(), layer.w.data(), second.data());
    }).join();
    EXPECT_EQ(first, second);
  }
}

TEST(Linear, TwoThreadsComputeTheSame) {
  const LinearShape shape{256, 256, 256};
  const Layer<float> layer{shape};
  std::vector<float> one(static_cast<std::size_t>(shape.rows * shape.out));
  linear_forward(shape, layer.x.data(), layer.w.data(), one.data());
  std::vector<float> two(one.size());
  set_kernel_threads(2);
  linear_forward(shape, layer.x.data(), layer.w.data(), two.data());
  set_kernel_threads(1);
  for (std::size_t i = 0; i < one.size(); ++i) {
    ASSERT_NEAR(one[i], two[i], 1e-5);
  }
}

TEST(KernelThreads, DivideTheCoresAmongTheRanks) {
  EXPECT_EQ(choose_kernel_threads(16, 4, ""), 4);
  EXPECT_EQ(choose_kernel_threads(16, 5, ""), 3);
  EXPECT_EQ(choose_kernel_threads(2, 8, ""), 1);
  EXPECT_EQ(choose_kernel_threads(16, 4, "2"), 2);
  EXPECT_EQ(choose_kernel_threads(16, 4, "3,1"), 3);
  EXPECT_EQ(choose_kernel_threads(16, 4, "0"), 4);
  EXPECT_EQ(choose_kernel_threads(16, 4, "many"), 4);
}

}  // namespace
}  // namespace rpeg::cpu
