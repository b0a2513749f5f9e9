#include "rpeg/calibrate/profile_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "calibrate/message_fit.h"
#include "calibrate/minimise.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

TEST(Minimise, FindsTheMinimumOfACurvedValley) {
  // Rosenbrock: 0 at (1, 1).
  const auto valley = [](const std::vector<double>& x) {
    return std::pow(1.0 - x[0], 2) + 100.0 * std::pow(x[1] - x[0] * x[0], 2);
  };
  const auto best = minimise(valley, {-1.2, 1.0}, 0.3);
  EXPECT_NEAR(best[0], 1.0, 1e-3);
  EXPECT_NEAR(best[1], 1.0, 2e-3);
}

TEST(Minimise, NeedsNoDerivative) {
  const auto kink = [](const std::vector<double>& x) {
    return std::abs(x[0] - 3.0) + 2.0 * std::abs(x[0] + x[1]) + std::abs(x[1] + 3.0);
  };
  const auto best = minimise(kink, {0.0, 0.0}, 0.5);
  EXPECT_NEAR(best[0], 3.0, 1e-3);
  EXPECT_NEAR(best[1], -3.0, 1e-3);
}

std::vector<MessagePoint> messages(const std::vector<int>& groups,
                                   const std::function<double(const MessagePoint&)>& seconds) {
  std::vector<MessagePoint> points;
  for (const int ranks : groups) {
    for (double bytes = 2048; bytes < 1e8; bytes *= 1.2) {
      MessagePoint point{.ranks = ranks, .ranks_per_node = ranks, .bytes = bytes, .seconds = 0.0};
      point.seconds = seconds(point);
      points.push_back(point);
    }
  }
  return points;
}

TEST(MessageFit, RecoversLatencyOfCallAndStepAndBandwidth) {
  // 20 us a call, 1.5 us a step of which 4 ranks have 2 (4 - 1) = 6, 200 GB/s of 2 · 3/4 · n bytes.
  const auto points = messages({2, 4, 8}, [](const MessagePoint& p) {
    return 20e-6 + 2.0 * (p.ranks - 1) * 1.5e-6 + 2.0 * (p.ranks - 1) / p.ranks * p.bytes / 200e9;
  });
  const MessageFit fit = fit_messages(MessageKind::kAllReduce, points);
  EXPECT_NEAR(fit.alpha_s, 20e-6, 0.1e-6);
  EXPECT_NEAR(fit.alpha_step_s, 1.5e-6, 0.02e-6);
  EXPECT_NEAR(fit.beta_s_per_byte * 200e9, 1.0, 1e-3);
  EXPECT_TRUE(fit.table.empty());
}

TEST(MessageFit, TwoSizesOfGroupsGiveNoLatencyPerStep) {
  const auto points = messages({2, 8}, [](const MessagePoint& p) {
    return 20e-6 + 2.0 * (p.ranks - 1) * 1.5e-6 + p.bytes / 100e9;
  });
  EXPECT_EQ(fit_messages(MessageKind::kAllReduce, points).alpha_step_s, 0.0);
}

TEST(MessageFit, ATableTakesThePlaceOfALineThatMisses) {
  // A protocol that is slow up to 1 MB and fast beyond it: no line is near both.
  const auto points = messages({2}, [](const MessagePoint& p) {
    return p.bytes < 1e6 ? 5e-6 + p.bytes / 2e9 : 5e-4 + p.bytes / 500e9;
  });
  const MessageFit fit = fit_messages(MessageKind::kSendRecv, points);
  ASSERT_GE(fit.table.size(), 5u);
  EXPECT_TRUE(std::is_sorted(fit.table.begin(), fit.table.end()));
  double sum = 0.0;
  for (const MessagePoint& point : points) {
    sum += std::abs(predicted_message_s(MessageKind::kSendRecv, fit, point) / point.seconds - 1.0);
  }
  EXPECT_LT(sum / static_cast<double>(points.size()), 0.15);
  // Beyond the last row at the slope of the last two.
  const auto& [x0, y0] = fit.table[fit.table.size() - 2];
  const auto& [x1, y1] = fit.table.back();
  const MessagePoint far{.ranks = 2, .ranks_per_node = 2, .bytes = 2.0 * x1, .seconds = 0.0};
  EXPECT_NEAR(
      predicted_message_s(MessageKind::kSendRecv, fit, far), y1 + x1 * (y1 - y0) / (x1 - x0), 1e-9);
}

/// What the matrix products reach, by tp.
struct Truth {
  std::map<int, double> share, half_rows, flop_per_s;
};
const Truth kEqual = {{{1, 0.80}, {2, 0.80}, {4, 0.80}, {8, 0.80}},
                      {{1, 100.0}, {2, 100.0}, {4, 100.0}, {8, 100.0}},
                      {{1, 240e12}, {2, 240e12}, {4, 240e12}, {8, 240e12}}};
const Truth kDrifting = {{{1, 0.80}, {2, 0.80}, {4, 0.78}, {8, 0.76}},
                         {{1, 100.0}, {2, 105.0}, {4, 110.0}, {8, 120.0}},
                         {{1, 240e12}, {2, 244.8e12}, {4, 240e12}, {8, 228e12}}};

/// Times by formulas written out here.
KernelMeasurements synthetic(const Truth& truth) {
  struct Shape {
    const char* name;
    std::int64_t hidden, ffn, heads, kv_heads;
  };
  constexpr double kBandwidth = 2.039e12;
  KernelMeasurements result;
  for (const Shape& s : {Shape{"small", 4096, 11008, 32, 32},
                         Shape{"wide", 8192, 28672, 64, 8},
                         Shape{"middle", 5120, 13824, 40, 40}}) {
    LayerMeasurements layer{.name = s.name, .model = {}, .points = {}};
    layer.model.layers = 1;
    layer.model.hidden_dim = s.hidden;
    layer.model.ffn_dim = s.ffn;
    layer.model.num_heads = s.heads;
    layer.model.num_kv_heads = s.kv_heads;
    layer.model.head_dim = 128;
    const auto h = static_cast<double>(s.hidden);
    const auto f = static_cast<double>(s.ffn);
    const auto q = 128.0 * static_cast<double>(s.heads);
    const auto k = 128.0 * static_cast<double>(s.kv_heads);
    for (const int tp : {1, 2, 4, 8}) {
      const double elements = (2.0 * h * q + 2.0 * h * k + 3.0 * h * f) / tp;
      for (double tokens = 1; tokens <= 4096; tokens *= std::sqrt(2.0)) {
        const double floor_s = 2.0 * elements / (truth.share.at(tp) * kBandwidth) + 4.0 * 3e-6;
        const double affine_s =
            2.0 * elements * (tokens + truth.half_rows.at(tp)) / truth.flop_per_s.at(tp) +
            4.0 * 5e-6;
        const double bytes = 2.0 * 10.0 * h + (4.0 * (q + k) + 6.0 * f) / tp;
        layer.points.push_back({.tp = tp,
                                .tokens = tokens,
                                .gemm_s = std::max(floor_s, affine_s),
                                .non_gemm_s = 9e-6 + tokens * bytes / (0.6 * kBandwidth)});
      }
    }
    result.models.push_back(layer);
  }
  result.all_reduce = messages({2, 4, 8}, [](const MessagePoint& p) {
    return 30e-6 + 2.0 * (p.ranks - 1) / p.ranks * p.bytes / 170e9;
  });
  result.send_recv = messages({2}, [](const MessagePoint& p) { return 10e-6 + p.bytes / 250e9; });
  return result;
}

TEST(ProfileFit, RecoversTheProfileThatMadeTheMeasurements) {
  const ProfileFit fit = fit_profile(synthetic(kEqual), {.gpu = gpu_datasheet("a100")});
  const HardwareProfile& p = fit.profile;
  EXPECT_NEAR(p.flops_per_gpu, 240e12, 0.002 * 240e12);
  EXPECT_NEAR(p.gemm_m_half, 100.0, 1.0);
  EXPECT_NEAR(p.decode_bw_eff, 0.80, 0.003);
  EXPECT_NEAR(p.gemm_call_s, 5e-6, 0.1e-6);
  EXPECT_NEAR(p.gemm_call_floor_s, 3e-6, 0.1e-6);
  EXPECT_NEAR(p.gemm_m_half_tp.at(8), 100.0, 2.0);
  EXPECT_NEAR(p.decode_bw_eff_tp.at(4), 0.80, 0.003);
  EXPECT_NEAR(p.flops_eff_tp.at(2), 1.0, 0.002);
  EXPECT_NEAR(p.non_gemm_constant, 9e-6, 0.01e-6);
  EXPECT_NEAR(p.vector_eff, 0.6, 0.001);
  EXPECT_TRUE(p.non_gemm_bytes);
  EXPECT_NEAR(p.collective[0].alpha_s, 30e-6, 0.2e-6);
  EXPECT_NEAR(p.point_to_point[0].beta_s_per_byte * 250e9, 1.0, 0.002);
  for (const FitRow& row : fit.rows) {
    EXPECT_LT(row.error.mean, 0.003) << row.what << ' ' << row.model << ' ' << row.group;
  }
  ASSERT_EQ(fit.left_out.size(), 6u);
  // What no message told is marked, and twice the tier below.
  EXPECT_THAT(p.estimated, testing::IsSupersetOf({"alpha_coll_n", "beta_p2p_r", "attention_eff"}));
  EXPECT_THAT(p.estimated, testing::Not(testing::Contains("beta_coll_g")));
  EXPECT_DOUBLE_EQ(p.collective[1].alpha_s, 2.0 * p.collective[0].alpha_s);
  EXPECT_EQ(parse_hardware_profile(hardware_profile_text(p, {}), "hw.yaml"), p);
}

TEST(ProfileFit, FollowsRatesThatChangeWithTheTensorParallelSize) {
  const ProfileFit fit = fit_profile(synthetic(kDrifting), {.gpu = gpu_datasheet("a100")});
  // Part of the drift may end up in the times of a call: what counts is the time predicted.
  for (const FitRow& row : fit.rows) {
    EXPECT_LT(row.error.mean, 0.035) << row.what << ' ' << row.model << ' ' << row.group;
  }
  EXPECT_NEAR(fit.profile.flops_eff_tp.at(2), 1.02, 0.01);
  EXPECT_NEAR(fit.profile.flops_eff_tp.at(8), 0.95, 0.01);
}

TEST(ProfileFit, IsTheSameEveryTime) {
  const auto once = fit_profile(synthetic(kEqual), {.gpu = gpu_datasheet("a100")});
  EXPECT_EQ(once.profile, fit_profile(synthetic(kEqual), {.gpu = gpu_datasheet("a100")}).profile);
}

TEST(ProfileFit, ALinkFromTheDatasheetIsMarkedEstimated) {
  const ProfileFit fit =
      fit_profile(synthetic(kEqual), {.gpu = gpu_datasheet("a100"), .node_link_bytes_per_s = 25e9});
  EXPECT_DOUBLE_EQ(fit.profile.collective[1].beta_s_per_byte, 5e-11);  // 1 / (0.8 · 25e9)
  EXPECT_THAT(fit.profile.estimated, testing::Contains("beta_coll_n"));
}

TEST(ProfileFit, NeedsASingleGpuToCompareWith) {
  KernelMeasurements measurements = synthetic(kEqual);
  std::erase_if(measurements.models[1].points, [](const LayerPoint& p) { return p.tp == 1; });
  try {
    fit_profile(measurements, {.gpu = gpu_datasheet("a100")});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.what(), testing::HasSubstr("wide: no measurement with"));
  }
}

struct Published {
  const char* gpu;
  const char* file;
  double node_link_bytes_per_s;
  double mean_error;
};

class PublishedKernels : public testing::TestWithParam<Published> {};

TEST_P(PublishedKernels, AreFittedByTheFileThatIsShipped) {
  const char* data = std::getenv("RPEG_TEST_DATA");
  const auto folder = std::filesystem::path(data != nullptr ? data : "") / "kernel_profiles";
  if (data == nullptr || !std::filesystem::exists(folder)) {
    GTEST_SKIP() << "set RPEG_TEST_DATA to a folder with kernel_profiles/ (docs/calibration.md)";
  }
  const Published& published = GetParam();
  const ProfileFit fit = fit_profile(load_kernel_measurements(folder, published.gpu),
                                     {.gpu = gpu_datasheet(published.gpu),
                                      .node_link_bytes_per_s = published.node_link_bytes_per_s});
  int totals = 0;
  for (const FitRow& row : fit.rows) {
    if (row.what == "matrix products" && row.model.empty()) {
      EXPECT_LE(row.error.mean, published.mean_error);
      EXPECT_EQ(row.error.points, 3132);
      ++totals;
    }
  }
  EXPECT_EQ(totals, 1);
  int left_out = 0;
  for (const FitRow& row : fit.left_out) {
    if (row.what == "matrix products") {
      EXPECT_LE(row.error.mean, 0.07) << row.model;
      ++left_out;
    }
  }
  EXPECT_EQ(left_out, 3);

  const HardwareProfile shipped = load_hardware_profile(published.file);
  EXPECT_NEAR(shipped.flops_per_gpu / fit.profile.flops_per_gpu, 1.0, 0.01);
  EXPECT_NEAR(shipped.gemm_m_half / fit.profile.gemm_m_half, 1.0, 0.03);
  EXPECT_NEAR(shipped.decode_bw_eff / fit.profile.decode_bw_eff, 1.0, 0.01);
  EXPECT_NEAR(shipped.vector_eff / fit.profile.vector_eff, 1.0, 0.01);
  EXPECT_EQ(shipped.estimated, fit.profile.estimated);
}

INSTANTIATE_TEST_SUITE_P(
    Gpus,
    PublishedKernels,
    testing::Values(Published{"a100", RPEG_SOURCE_DIR "/configs/hw/a100-80g-dgx.yaml", 25e9, 0.045},
                    Published{"h100", RPEG_SOURCE_DIR "/configs/hw/h100-dgx.yaml", 0.0, 0.06}),
    [](const auto& tested) { return std::string(tested.param.gpu); });

}  // namespace
}  // namespace rpeg
