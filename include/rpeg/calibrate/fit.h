#pragma once

#include <span>

#include "rpeg/profile/hardware_profile.h"

namespace rpeg {

/// One measurement: how long a call took at `x` rows, or for `x` bytes on the wire.
struct TimedPoint {
  double x = 0.0;
  double seconds = 0.0;
};

/// seconds = intercept_s + x · slope_s, both at least 0.
struct LineFit {
  double intercept_s = 0.0;
  double slope_s = 0.0;
  FitQuality quality;
};

/// Least squares of the relative error (weights 1/seconds²), so that an 8-byte message counts as
/// much as one of 16 MB; coefficients are kept from going negative. At least two points with
/// different x and positive seconds (else kInternal).
LineFit fit_line(std::span<const TimedPoint> points);

/// What the time of all matrix products of a layer depends on.
struct GemmShape {
  double flop_per_row = 0.0;        ///< 2 · parameters of the matrices
  double weight_bytes = 0.0;        ///< W
  double memory_bytes_per_s = 0.0;  ///< B
};

/// t(M) = max(W / (ε B), flop_per_row · (M + γ) / F).
struct GemmFit {
  double flop_per_s = 0.0;     ///< F, the rate that growing M tends to
  double m_half = 0.0;         ///< γ, rows at which half of it is reached
  double bandwidth_eff = 1.0;  ///< ε in (0, 1]
  FitQuality quality;          ///< of the maximum over all points
};

/// ε from the fastest pass over the weights with at most 8 rows; F and γ by least squares of the
/// relative error over the points that this floor does not explain. Needs a point with at most 8
/// rows and two with more (else kInternal); kRuntime when the times do not grow with the rows.
GemmFit fit_gemm(const GemmShape& shape, std::span<const TimedPoint> points);

/// Compares predictions with measurements, entry by entry: RMS of (fit − measured)/measured, and R²
/// of the logarithms (a plain R² would see nothing but the largest points).
FitQuality fit_quality(std::span<const double> predicted_s, std::span<const TimedPoint> points);

}  // namespace rpeg
