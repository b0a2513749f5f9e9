#include "rpeg/calibrate/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "rpeg/base/error.h"
#include "rpeg/base/rng.h"

namespace rpeg {
namespace {

// 8 B … 16 MB over a link of 20 us and 2 GB/s, each time off by a factor of up to 1 ± noise.
std::vector<TimedPoint> link_points(double noise) {
  Rng rng(7);
  std::vector<TimedPoint> points;
  for (double bytes = 8.0; bytes <= 16.8e6; bytes *= 2.0) {
    const double factor = 1.0 + noise * (2.0 * rng.uniform() - 1.0);
    points.push_back({bytes, (20e-6 + bytes / 2e9) * factor});
  }
  return points;
}

TEST(FitLine, RecoversExactParameters) {
  const LineFit fit = fit_line(link_points(0.0));
  EXPECT_NEAR(fit.intercept_s, 20e-6, 20e-6 * 1e-9);
  EXPECT_NEAR(fit.slope_s, 5e-10, 5e-10 * 1e-9);
  EXPECT_EQ(fit.quality.samples, 22);
  EXPECT_LT(fit.quality.relative_rms, 1e-9);
  EXPECT_NEAR(fit.quality.r_squared, 1.0, 1e-9);
}

TEST(FitLine, RecoversBothEndsUnderNoise) {
  // An unweighted fit would follow the noise of the largest message: ± 0.8 ms against 20 us.
  const LineFit fit = fit_line(link_points(0.1));
  EXPECT_NEAR(fit.intercept_s, 20e-6, 20e-6 * 0.05);
  EXPECT_NEAR(fit.slope_s, 5e-10, 5e-10 * 0.08);
  EXPECT_GT(fit.quality.relative_rms, 0.02);
  EXPECT_LT(fit.quality.relative_rms, 0.1);
  EXPECT_GT(fit.quality.r_squared, 0.99);
}

TEST(FitLine, KeepsTheInterceptFromGoingNegative) {
  // The line through (1, 1) and (2, 3) is 2 x − 1. Through the origin, the relative errors s/1 − 1
  // and 2 s/3 − 1 are least at s = (1 + 2/3)/(1 + 4/9) = 15/13.
  const std::vector<TimedPoint> points = {{1.0, 1.0}, {2.0, 3.0}};
  const LineFit fit = fit_line(points);
  EXPECT_EQ(fit.intercept_s, 0.0);
  EXPECT_NEAR(fit.slope_s, 15.0 / 13.0, 1e-12);
  // Errors 2/13 and −3/13.
  EXPECT_NEAR(fit.quality.relative_rms, std::sqrt((4.0 + 9.0) / 169.0 / 2.0), 1e-12);
}

TEST(FitLine, KeepsTheSlopeFromGoingNegative) {
  // Falling times: the constant c with least (c/4 − 1)² + (c/2 − 1)² is (1/4 + 1/2)/(1/16 + 1/4).
  const std::vector<TimedPoint> points = {{1.0, 4.0}, {2.0, 2.0}};
  const LineFit fit = fit_line(points);
  EXPECT_EQ(fit.slope_s, 0.0);
  EXPECT_NEAR(fit.intercept_s, 0.75 / 0.3125, 1e-12);
}

TEST(FitLine, RefusesPointsThatDoNotSpanALine) {
  EXPECT_THROW(fit_line(std::vector<TimedPoint>{{1.0, 1.0}}), Error);
  EXPECT_THROW(fit_line(std::vector<TimedPoint>{{1.0, 1.0}, {1.0, 2.0}}), Error);
  EXPECT_THROW(fit_line(std::vector<TimedPoint>{{1.0, 0.0}, {2.0, 2.0}}), Error);
}

// A layer of 10 M fp32 parameters beside a memory of 20 GB/s.
constexpr GemmShape kLayer{.flop_per_row = 2e7, .weight_bytes = 4e7, .memory_bytes_per_s = 2e10};

std::vector<TimedPoint> gemm_points(double flop_per_s, double m_half, double eff, double noise) {
  Rng rng(3);
  std::vector<TimedPoint> points;
  for (double rows = 1.0; rows <= 4096.0; rows *= 2.0) {
    const double seconds = std::max(kLayer.weight_bytes / (eff * kLayer.memory_bytes_per_s),
                                    kLayer.flop_per_row * (rows + m_half) / flop_per_s);
    points.push_back({rows, seconds * (1.0 + noise * (2.0 * rng.uniform() - 1.0))});
  }
  return points;
}

TEST(FitGemm, RecoversFloorAndAffineBranch) {
  // Floor 40 MB / (0.6 · 20 GB/s) = 3.333 ms, affine branch (M + 4) · 0.2 ms: cross at M = 12.7.
  const GemmFit fit = fit_gemm(kLayer, gemm_points(1e11, 4.0, 0.6, 0.0));
  EXPECT_NEAR(fit.bandwidth_eff, 0.6, 1e-9);
  EXPECT_NEAR(fit.flop_per_s, 1e11, 1e11 * 1e-9);
  EXPECT_NEAR(fit.m_half, 4.0, 1e-6);
  EXPECT_LT(fit.quality.relative_rms, 1e-9);
  EXPECT_EQ(fit.quality.samples, 13);
}

TEST(FitGemm, RecoversParametersUnderNoise) {
  const GemmFit fit = fit_gemm(kLayer, gemm_points(1e11, 40.0, 0.6, 0.05));
  EXPECT_NEAR(fit.flop_per_s, 1e11, 1e11 * 0.04);
  EXPECT_NEAR(fit.m_half, 40.0, 40.0 * 0.08);
  EXPECT_LT(fit.quality.relative_rms, 0.05);
}

TEST(FitGemm, CacheFasterThanMemoryLeavesTheShareAtOne) {
  const GemmFit fit = fit_gemm(kLayer, gemm_points(1e11, 4.0, 2.5, 0.0));
  EXPECT_EQ(fit.bandwidth_eff, 1.0);
}

TEST(FitGemm, SaysThatABusyMachineCannotBeCalibrated) {
  // Falling times beyond the floor: the best affine branch is a constant.
  const std::vector<TimedPoint> points = {{2.0, 1e-3}, {64.0, 9e-3}, {128.0, 5e-3}, {256.0, 3e-3}};
  try {
    fit_gemm(kLayer, points);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
    EXPECT_NE(error.message().find("busy"), std::string::npos);
  }
}

}  // namespace
}  // namespace rpeg
