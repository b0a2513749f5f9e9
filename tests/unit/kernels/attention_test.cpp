#include "rpeg/kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/finite_difference.h"

namespace rpeg::cpu {
namespace {

using Values = std::vector<double>;
using Starts = std::vector<std::int64_t>;

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

/// The definition, one query at a time: softmax over the keys up to the query's own.
Values plain_attention(const AttentionShape& shape, const Starts& starts, const Values& qkv) {
  const std::int64_t d = shape.head_dim;
  Values out(size(starts.back() * shape.query_width()));
  for (std::size_t s = 0; s + 1 < starts.size(); ++s) {
    for (std::int64_t t = starts[s]; t < starts[s + 1]; ++t) {
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        const std::int64_t key = (shape.heads + head * shape.kv_heads / shape.heads) * d;
        const std::int64_t value = key + shape.kv_heads * d;
        double sum = 0.0;
        Values mean(size(d));
        for (std::int64_t j = starts[s]; j <= t; ++j) {
          double score = 0.0;
          for (std::int64_t i = 0; i < d; ++i) {
            score += qkv[size(t * shape.qkv_width() + head * d + i)] *
                     qkv[size(j * shape.qkv_width() + key + i)];
          }
          const double weight = std::exp(score / std::sqrt(static_cast<double>(d)));
          sum += weight;
          for (std::int64_t i = 0; i < d; ++i) {
            mean[size(i)] += weight * qkv[size(j * shape.qkv_width() + value + i)];
          }
        }
        for (std::int64_t i = 0; i < d; ++i) {
          out[size(t * shape.query_width() + head * d + i)] = mean[size(i)] / sum;
        }
      }
    }
  }
  return out;
}

struct Forward {
  Values out;
  Values log_sum_exp;
};

Forward run_forward(const AttentionShape& shape, const Starts& starts, const Values& qkv) {
  Forward result{Values(size(starts.back() * shape.query_width())),
                 Values(size(starts.back() * shape.heads))};
  Values scratch(size(attention_scratch_size(starts)));
  attention_forward(
      shape, starts, qkv.data(), result.out.data(), result.log_sum_exp.data(), scratch.data());
  return result;
}

void expect_near(const Values& actual, const Values& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance) << i;
  }
}

const AttentionShape kGrouped{4, 2, 6};

TEST(Attention, MatchesItsDefinitionForSequencesOfAllLengths) {
  // 1 and 2: tiny products; 64, 65 and 150: one block of queries, just over, several.
  const Starts starts = {0, 1, 3, 67, 132, 282};
  const Values qkv = random_values(1, starts.back() * kGrouped.qkv_width());
  expect_near(
      run_forward(kGrouped, starts, qkv).out, plain_attention(kGrouped, starts, qkv), 1e-13);
}

TEST(Attention, GradientMatchesFiniteDifferences) {
  for (const Starts& starts : {Starts{0, 1, 6, 9}, Starts{0, 70}}) {
    const Values qkv = random_values(1, starts.back() * kGrouped.qkv_width());
    const Values dout = random_values(2, starts.back() * kGrouped.query_width());
    const Forward forward = run_forward(kGrouped, starts, qkv);
    Values scratch(size(attention_scratch_size(starts)));
    Values dqkv(qkv.size(), 99.0);  // overwritten
    attention_backward(kGrouped,
                       starts,
                       qkv.data(),
                       forward.out.data(),
                       forward.log_sum_exp.data(),
                       dout.data(),
                       dqkv.data(),
                       scratch.data());
    const std::size_t stride = starts.back() > 20 ? 11 : 1;
    expect_gradient(
        qkv,
        dqkv,
        [&](const Values& qkv_) {
          return weighted_sum(dout, run_forward(kGrouped, starts, qkv_).out);
        },
        stride);
  }
}

TEST(Attention, IsStableForLargeScores) {
  const AttentionShape shape{1, 1, 2};
  // Scores of 1e6 and 0: the softmax is (1, 0) though exp(1e6) overflows.
  const Values qkv = {1.0, 0.0, 1e6, 0.0, 7.0, 8.0, 1e3, 0.0, 0.0, 0.0, 1.0, 2.0};
  expect_near(run_forward(shape, {0, 2}, qkv).out, {7.0, 8.0, 7.0, 8.0}, 0.0);
}

TEST(CachedAttention, OfEachRowEqualsThePackedForwardPass) {
  const Starts starts = {0, 5, 6, 26};
  const Values qkv = random_values(1, starts.back() * kGrouped.qkv_width());
  Values cache;
  std::vector<CachedQuery> queries;
  for (std::size_t s = 0; s + 1 < starts.size(); ++s) {
    for (std::int64_t t = starts[s]; t < starts[s + 1]; ++t) {
      const auto row = qkv.begin() + t * kGrouped.qkv_width();
      cache.insert(cache.end(), row + kGrouped.query_width(), row + kGrouped.qkv_width());
      queries.push_back({starts[s], t - starts[s] + 1});
    }
  }
  Values out(size(starts.back() * kGrouped.query_width()));
  Values scratch(20);
  cached_attention(kGrouped, queries, qkv.data(), cache.data(), out.data(), scratch.data());
  expect_near(out, run_forward(kGrouped, starts, qkv).out, 1e-14);
}

}  // namespace
}  // namespace rpeg::cpu
