#include "cost/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "rpeg/base/rng.h"
#include "unit/cost/example.h"

namespace rpeg {
namespace {

TEST(PipelineTime, CutsUnevenMicroBatches) {
  const MicroBatches batches = cut_micro_batches(10, 4);  // 3, 3, 2, 2
  EXPECT_EQ(batches.large_units * batches.large_count, 6.0);
  EXPECT_EQ(batches.small_units * batches.small_count, 4.0);
}

TEST(PipelineTime, ExposesTheSendsThatOneForwardOneBackwardCannotHide) {
  EXPECT_DOUBLE_EQ(one_f_one_b_sends_s(1.0, 1, 5), 0.0);
  EXPECT_DOUBLE_EQ(one_f_one_b_sends_s(1.0, 4, 8), 2 * 8 * 3 / 4.0 + 4);
  EXPECT_DOUBLE_EQ(one_f_one_b_sends_s(1.0, 4, 1), 6.0);  // one micro-batch there and back
}

/// 1F1B as events: stage i forwards min(m, pp − 1 − i) micro-batches, then one forward and one
/// backward in turn. A message between stages takes `send_s`.
double simulate_1f1b(const std::vector<double>& forward,
                     const std::vector<double>& backward,
                     std::size_t m,
                     double send_s) {
  const std::size_t pp = forward.size();
  std::vector<std::vector<double>> forward_end(pp, std::vector<double>(m, -1.0));
  std::vector<std::vector<double>> backward_end = forward_end;
  std::vector<std::size_t> forwards(pp, 0);
  std::vector<std::size_t> backwards(pp, 0);
  std::vector<double> free_at(pp, 0.0);
  const auto try_forward = [&](std::size_t i) {
    const std::size_t j = forwards[i];
    const double ready = i == 0 ? 0.0 : forward_end[i - 1][j];
    if (ready < 0.0) return false;
    const double start = std::max(free_at[i], ready + (i == 0 ? 0.0 : send_s));
    free_at[i] = forward_end[i][j] = start + forward[i];
    ++forwards[i];
    return true;
  };
  const auto try_backward = [&](std::size_t i) {
    const std::size_t j = backwards[i];
    const bool last = i + 1 == pp;
    const double ready = last ? forward_end[i][j] : backward_end[i + 1][j];
    if (ready < 0.0) return false;
    const double start = std::max(free_at[i], ready + (last ? 0.0 : send_s));
    free_at[i] = backward_end[i][j] = start + backward[i];
    ++backwards[i];
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < pp; ++i) {
      const std::size_t ahead = std::min(m, pp - 1 - i);
      const bool forward_next = forwards[i] < m && forwards[i] <= ahead + backwards[i];
      if (forward_next) {
        moved |= try_forward(i);
      } else if (backwards[i] < m) {
        moved |= try_backward(i);
      }
    }
  }
  return *std::max_element(free_at.begin(), free_at.end());
}

double model_1f1b(const std::vector<double>& forward,
                  const std::vector<double>& backward,
                  std::size_t m) {
  StageTimes stage;
  for (std::size_t i = 0; i < forward.size(); ++i) {
    const double t = forward[i] + backward[i];
    stage.slowest.compute = std::max(stage.slowest.compute, t);
    stage.sum_s += t;
  }
  const auto count = static_cast<std::int64_t>(m);
  return pipeline_time(stage, stage, cut_micro_batches(count, count)).total_s;
}

TEST(PipelineTime, IsExactForUniformStages) {
  for (const std::size_t pp : {1U, 2U, 3U, 8U}) {
    for (const std::size_t m : {1U, 2U, 7U, 64U}) {
      const std::vector<double> f(pp, 1.0);
      const std::vector<double> b(pp, 2.0);
      EXPECT_DOUBLE_EQ(simulate_1f1b(f, b, m, 0.0), model_1f1b(f, b, m)) << pp << " " << m;
    }
  }
}

TEST(PipelineTime, IsAnUpperBoundOfUnevenPipelines) {
  Rng rng(11);
  double worst = 1.0;
  for (int trial = 0; trial < 2000; ++trial) {
    const auto pp = static_cast<std::size_t>(1 + rng.below(8));
    const auto m = static_cast<std::size_t>(1 + rng.below(32));
    std::vector<double> f;
    std::vector<double> b;
    double lower = 0.0;
    double before = 0.0;
    for (std::size_t i = 0; i < pp; ++i) {
      f.push_back(0.5 + rng.uniform());
      b.push_back(f.back() * (1.5 + rng.uniform()));
      lower = std::max(lower, before + static_cast<double>(m) * (f[i] + b[i]));
      before += f[i] + b[i];
    }
    const double simulated = simulate_1f1b(f, b, m, 0.0);
    const double ratio = simulated / model_1f1b(f, b, m);
    ASSERT_LE(ratio, 1.0 + 1e-12);
    ASSERT_GE(simulated, lower * (1.0 - 1e-12));
    worst = std::min(worst, ratio);
  }
  EXPECT_GT(worst, 0.8);
  EXPECT_LT(worst, 1.0);  // the stages were not all alike
}

TEST(PipelineTime, CountsTheSendsOfUniformPipelines) {
  for (const std::size_t pp : {2U, 4U, 8U}) {
    for (const std::size_t m : {8U, 16U, 64U}) {
      const std::vector<double> f(pp, 1.0);
      const std::vector<double> b(pp, 2.0);
      const double c = 0.001;
      EXPECT_NEAR(simulate_1f1b(f, b, m, c) - simulate_1f1b(f, b, m, 0.0),
                  one_f_one_b_sends_s(c, static_cast<int>(pp), static_cast<std::int64_t>(m)),
                  1e-9)
          << pp << " " << m;
    }
  }
}

TEST(PipelineTime, OfAVertexHasTheLayersAndTheHeadWhereTheyAre) {
  // Seven layers on three stages: 3, 2, 2 and the head. Every layer takes 1 s forward and 2 s
  // backward, the head `head_s`.
  WorkloadConfig config = example_config();
  config.models.fill(model_of(7, 64, 128, 100, 2, 2));
  config.workload.batch_size = 5;
  config.workload.gen_quantiles.clear();
  HardwareProfile profile = example_profile();
  profile.flops_per_gpu = 1e30;
  profile.memory_bandwidth = 1e30;
  profile.non_gemm_constant = 1.0;
  profile.non_gemm_scaling = 0.0;
  profile.point_to_point = {};
  profile.collective = {};
  const VertexPlan plan = plan_on(1, 3, {1, 3, 1}, 5);
  const double time_s = price_vertex(actor_training(), plan, config, profile).total_s;
  EXPECT_NEAR(time_s, model_1f1b({3, 2, 2}, {6, 4, 4}, 5), 1e-6);
  EXPECT_GE(time_s, simulate_1f1b({3, 2, 2}, {6, 4, 4}, 5, 0.0) - 1e-6);
  // A head of 5 s and 10 s makes the last stage the slowest.
  profile.vector_eff = 1e-30;  // 512 rows of 100 logits in three passes of 4 bytes
  profile.memory_bandwidth = 512.0 * 100 * 12 / 5 * 1e30;
  const double heavy_s = price_vertex(actor_training(), plan, config, profile).total_s;
  const double update_s =
      30.0 * (3 * (4 * 64 * 64 + 3 * 64 * 128 + 128) + 100 * 64) / (512.0 * 100 * 12 / 5);
  EXPECT_NEAR(heavy_s, model_1f1b({3, 2, 7}, {6, 4, 14}, 5) + update_s, 1e-6);
}

}  // namespace
}  // namespace rpeg
