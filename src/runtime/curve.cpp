#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "rpeg/runtime/run.h"

namespace rpeg {
namespace {

constexpr int kEighths = 8;

/// A cell filled from below by `eighths` of its height: space, U+2581 … U+2588.
const char* block(int eighths) {
  constexpr std::array<const char*, kEighths + 1> kBlocks = {
      " ", "\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"};
  return kBlocks[static_cast<std::size_t>(std::clamp(eighths, 0, kEighths))];
}

/// Mean reward of each column's iterations.
std::vector<double> column_means(const std::vector<IterationMetrics>& iterations, int columns) {
  const std::size_t count = std::min(iterations.size(), static_cast<std::size_t>(columns));
  std::vector<double> means(count);
  for (std::size_t column = 0; column < count; ++column) {
    const std::size_t first = column * iterations.size() / count;
    const std::size_t last = (column + 1) * iterations.size() / count;
    for (std::size_t i = first; i < last; ++i) {
      means[column] += iterations[i].reward_mean / static_cast<double>(last - first);
    }
  }
  return means;
}

/// The iteration axis: first and last number under the ends of `width` columns.
std::string iteration_axis(std::int64_t first, std::int64_t last, std::size_t width) {
  const std::string left = std::to_string(first);
  const std::string right = std::to_string(last);
  if (left.size() + right.size() + 1 > width) {
    return left + " - " + right;
  }
  return left + std::string(width - left.size() - right.size(), ' ') + right;
}

}  // namespace

std::string reward_curve(const std::vector<IterationMetrics>& iterations, int columns, int rows) {
  // Given preference pairs have no rewards.
  if (iterations.empty() || columns < 1 || rows < 1 || std::isnan(iterations.front().reward_mean)) {
    return "";
  }
  const std::vector<double> means = column_means(iterations, columns);
  // From 0, so that a bar's height is the reward; rewards are never negative.
  const double highest = *std::max_element(means.begin(), means.end());
  const double top = highest > 0.0 ? highest : 1.0;
  std::string text = "  reward\n";
  for (int row = rows - 1; row >= 0; --row) {
    const double upper_edge = top * (row + 1) / rows;
    text += row == rows - 1 || row == 0 ? fmt::format("{:8.3f} ┤", row == 0 ? 0.0 : upper_edge)
                                        : std::string(9, ' ') + "│";
    for (const double mean : means) {
      const double filled = mean / top * rows - row;
      text += block(static_cast<int>(std::lround(filled * kEighths)));
    }
    text += '\n';
  }
  text += std::string(9, ' ') + "└";
  for (std::size_t i = 0; i < means.size(); ++i) {
    text += "─";
  }
  text += '\n' + std::string(10, ' ') +
          iteration_axis(iterations.front().iteration, iterations.back().iteration, means.size()) +
          "  iteration\n";
  return text;
}

}  // namespace rpeg
