#pragma once

#include <vector>

#include "rpeg/calibrate/fit.h"
#include "rpeg/calibrate/profile_fit.h"

namespace rpeg {

/// What was predicted and measured, in pairs.
struct Comparison {
  std::vector<double> predicted_s;
  std::vector<TimedPoint> measured;

  void add(double predicted, double x, double seconds) {
    predicted_s.push_back(predicted);
    measured.push_back({x, seconds});
  }
};

FitError error_of(const Comparison& comparison);
FitQuality quality_of(const Comparison& comparison);

/// To four digits: those beyond are noise to readers of the file.
double rounded(double value);

}  // namespace rpeg
