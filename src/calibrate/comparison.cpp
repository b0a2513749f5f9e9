#include "calibrate/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace rpeg {

FitError error_of(const Comparison& comparison) {
  std::vector<double> errors;
  double sum = 0.0;
  for (std::size_t i = 0; i < comparison.measured.size(); ++i) {
    errors.push_back(std::abs(comparison.predicted_s[i] / comparison.measured[i].seconds - 1.0));
    sum += errors.back();
  }
  std::sort(errors.begin(), errors.end());
  const auto count = static_cast<double>(errors.size());
  const auto at = static_cast<std::size_t>(std::ceil(0.95 * count)) - 1;
  return {static_cast<std::int64_t>(errors.size()), sum / count, errors[at]};
}

double rounded(double value) {
  if (value == 0.0) {
    return 0.0;
  }
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 3.0);
  // By way of text, so that the file shows four digits.
  return std::stod(fmt::format("{:.12g}", std::round(value / unit) * unit));
}

FitQuality quality_of(const Comparison& comparison) {
  const FitQuality exact = fit_quality(comparison.predicted_s, comparison.measured);
  return {exact.samples, rounded(exact.relative_rms), rounded(exact.r_squared)};
}

}  // namespace rpeg
