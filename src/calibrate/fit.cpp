#include "rpeg/calibrate/fit.h"

// GCC 12 sees uninitialised registers inside its own AVX-512 intrinsics once Eigen inlines them.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <vector>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

constexpr double kDecodeRows = 8.0;

// Least squares of (prediction − seconds)/seconds with one basis function.
double fit_one(std::span<const TimedPoint> points, double (*basis)(double)) {
  double numerator = 0.0;
  double denominator = 0.0;
  for (const TimedPoint& point : points) {
    const double scaled = basis(point.x) / point.seconds;
    numerator += scaled;
    denominator += scaled * scaled;
  }
  return denominator > 0.0 ? numerator / denominator : 0.0;
}

struct Coefficients {
  double intercept = 0.0;
  double slope = 0.0;
};

Coefficients solve_line(std::span<const TimedPoint> points) {
  check(points.size() >= 2, "a line needs at least two points");
  Eigen::MatrixX2d design(static_cast<Eigen::Index>(points.size()), 2);
  for (std::size_t i = 0; i < points.size(); ++i) {
    check(points[i].seconds > 0.0, "a measured time must be positive");
    design.row(static_cast<Eigen::Index>(i)) << 1.0 / points[i].seconds,
        points[i].x / points[i].seconds;
  }
  // The columns differ by many orders of magnitude: scale them before judging their rank.
  const Eigen::Vector2d scale = design.colwise().norm();
  const Eigen::ColPivHouseholderQR<Eigen::MatrixX2d> qr(design * scale.cwiseInverse().asDiagonal());
  check(qr.rank() == 2, "a line needs points with different x");
  const Eigen::Vector2d solution =
      qr.solve(Eigen::VectorXd::Ones(design.rows())).cwiseQuotient(scale);
  // With two unknowns, the constrained optimum lies on the axis that was crossed.
  if (solution[0] < 0.0) {
    return {0.0, fit_one(points, [](double x) { return x; })};
  }
  if (solution[1] < 0.0) {
    return {fit_one(points, [](double) { return 1.0; }), 0.0};
  }
  return {solution[0], solution[1]};
}

double gemm_seconds(const GemmShape& shape, const GemmFit& fit, double rows) {
  return std::max(shape.weight_bytes / (fit.bandwidth_eff * shape.memory_bytes_per_s),
                  shape.flop_per_row * (rows + fit.m_half) / fit.flop_per_s);
}

}  // namespace

FitQuality fit_quality(std::span<const double> predicted_s, std::span<const TimedPoint> points) {
  check(predicted_s.size() == points.size() && !points.empty(), "one prediction per point");
  const auto count = static_cast<double>(points.size());
  double mean_log = 0.0;
  for (const TimedPoint& point : points) {
    mean_log += std::log(point.seconds) / count;
  }
  double relative = 0.0;
  double residual = 0.0;
  double total = 0.0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double ratio = predicted_s[i] / points[i].seconds;
    relative += (ratio - 1.0) * (ratio - 1.0) / count;
    residual += std::log(ratio) * std::log(ratio);
    total += std::pow(std::log(points[i].seconds) - mean_log, 2);
  }
  return {.samples = static_cast<std::int64_t>(points.size()),
          .relative_rms = std::sqrt(relative),
          .r_squared = total > 0.0 ? 1.0 - residual / total : 1.0};
}

LineFit fit_line(std::span<const TimedPoint> points) {
  const Coefficients line = solve_line(points);
  std::vector<double> predicted;
  for (const TimedPoint& point : points) {
    predicted.push_back(line.intercept + point.x * line.slope);
  }
  return {line.intercept, line.slope, fit_quality(predicted, points)};
}

GemmFit fit_gemm(const GemmShape& shape, std::span<const TimedPoint> points) {
  double floor_s = 0.0;
  for (const TimedPoint& point : points) {
    if (point.x <= kDecodeRows && (floor_s == 0.0 || point.seconds < floor_s)) {
      floor_s = point.seconds;
    }
  }
  check(floor_s > 0.0, "the weight-reading floor needs a point with at most 8 rows");
  GemmFit fit;
  // A layer that fits into the cache can beat the memory: the share stays at most 1.
  fit.bandwidth_eff = std::min(1.0, shape.weight_bytes / (floor_s * shape.memory_bytes_per_s));

  // Points at the floor say nothing about the affine branch; 10 % above it is beyond noise.
  std::vector<TimedPoint> affine;
  for (const TimedPoint& point : points) {
    if (point.seconds > 1.1 * floor_s) {
      affine.push_back(point);
    }
  }
  const Coefficients line = solve_line(affine);
  if (line.slope <= 0.0) {
    throw Error(ErrorKind::kRuntime,
                "matrix products took as long with many rows as with few: the machine is too busy "
                "to be calibrated; try again when it is idle");
  }
  fit.flop_per_s = shape.flop_per_row / line.slope;
  fit.m_half = line.intercept / line.slope;

  std::vector<double> predicted;
  for (const TimedPoint& point : points) {
    predicted.push_back(gemm_seconds(shape, fit, point.x));
  }
  fit.quality = fit_quality(predicted, points);
  return fit;
}

}  // namespace rpeg
