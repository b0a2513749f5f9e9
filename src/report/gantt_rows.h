#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rpeg/search/evaluation.h"

namespace rpeg::report {

/// A row of the timeline: GPUs that exactly the same tasks use.
struct GanttRow {
  std::string label;  ///< "r0 n[0-1] g[0-3]", several blocks joined by " + "
  int gpus = 0;
};

/// A task instance on a row.
struct GanttBar {
  std::size_t row = 0;
  std::size_t task = 0;
  double start_s = 0.0;
  double end_s = 0.0;
};

struct Gantt {
  std::vector<GanttRow> rows;  ///< by their first GPU; tasks without GPUs share a last row
  std::vector<GanttBar> bars;
  double end_s = 0.0;  ///< the bars cover [0, end_s]
};

/// The steady state over `periods` periods: every instance that is active in that time.
Gantt lay_out_gantt(const Evaluation& evaluation, int periods);

/// A round distance between ticks of an axis (1, 2 or 5 times a power of ten), at most `most` in
/// `length`.
double tick_distance(double length, int most);

}  // namespace rpeg::report
