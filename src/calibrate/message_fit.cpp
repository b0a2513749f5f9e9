#include "calibrate/message_fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "calibrate/minimise.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

constexpr double kAcceptedError = 0.15;
constexpr std::size_t kFewestGroups = 3;
constexpr double kRowsPerDecade = 3.0;
constexpr double kEdge = 0.3;

double steps(MessageKind kind, const MessagePoint& point) {
  return kind == MessageKind::kAllReduce ? 2.0 * (point.ranks - 1) : 0.0;
}

double mean_error(MessageKind kind, const MessageFit& fit, std::span<const MessagePoint> points) {
  double sum = 0.0;
  for (const MessagePoint& point : points) {
    sum += std::abs(predicted_message_s(kind, fit, point) / point.seconds - 1.0);
  }
  return sum / static_cast<double>(points.size());
}

double interpolate(const std::vector<std::pair<double, double>>& table, double bytes) {
  std::size_t upper = 1;
  while (upper + 1 < table.size() && table[upper].first < bytes) {
    ++upper;
  }
  const auto& [x0, y0] = table[upper - 1];
  const auto& [x1, y1] = table[upper];
  const double at_none = y0 - (y1 - y0) * x0 / (x1 - x0);
  if (bytes < x0 && at_none < 0.0) {
    return y0 * bytes / x0;
  }
  return at_none + (y1 - y0) * bytes / (x1 - x0);
}

/// Medians over even stretches of the logarithm of the bytes sent; times are kept from falling.
std::vector<std::pair<double, double>> make_table(MessageKind kind,
                                                  std::span<const MessagePoint> points) {
  std::map<int, std::vector<std::pair<double, double>>> bins;
  for (const MessagePoint& point : points) {
    const double sent = bytes_sent(kind, point);
    bins[static_cast<int>(std::lround(kRowsPerDecade * std::log10(sent)))].emplace_back(
        sent, point.seconds);
  }
  std::vector<std::pair<double, double>> table;
  for (auto& [unused, bin] : bins) {
    // The median of the rate and of the size: a row is then a typical point of its stretch.
    std::sort(bin.begin(), bin.end());
    const double bytes = bin[bin.size() / 2].first;
    std::sort(bin.begin(), bin.end(), [](const auto& a, const auto& b) {
      return a.second / a.first < b.second / b.first;
    });
    const auto& middle = bin[bin.size() / 2];
    const double seconds = middle.second / middle.first * bytes;
    table.emplace_back(bytes, table.empty() ? seconds : std::max(seconds, table.back().second));
  }
  return table;
}

}  // namespace

double bytes_sent(MessageKind kind, const MessagePoint& point) {
  return kind == MessageKind::kAllReduce ? steps(kind, point) / point.ranks * point.bytes
                                         : point.bytes;
}

double predicted_message_s(MessageKind kind, const MessageFit& fit, const MessagePoint& point) {
  const double sent = bytes_sent(kind, point);
  return fit.table.empty()
             ? fit.alpha_s + steps(kind, point) * fit.alpha_step_s + sent * fit.beta_s_per_byte
             : interpolate(fit.table, sent);
}

MessageFit fit_messages(MessageKind kind, std::span<const MessagePoint> points) {
  check(points.size() >= 2, "a line needs at least two points");
  std::set<int> groups;
  const MessagePoint* least = &points.front();
  const MessagePoint* most = &points.front();
  for (const MessagePoint& point : points) {
    groups.insert(point.ranks);
    least = point.seconds < least->seconds ? &point : least;
    most = point.bytes > most->bytes ? &point : most;
  }
  const bool has_steps = kind == MessageKind::kAllReduce && groups.size() >= kFewestGroups;
  const auto fit_at = [&](const std::vector<double>& x) {
    return MessageFit{.alpha_s = std::exp(x[0]),
                      .alpha_step_s = has_steps ? std::abs(x[2]) * least->seconds : 0.0,
                      .beta_s_per_byte = std::exp(x[1]),
                      .table = {}};
  };
  std::vector<double> start = {std::log(least->seconds),
                               std::log(most->seconds / bytes_sent(kind, *most))};
  if (has_steps) {
    start.push_back(0.1);
  }
  MessageFit line = fit_at(
      minimise([&](const std::vector<double>& x) { return mean_error(kind, fit_at(x), points); },
               start,
               kEdge));
  if (mean_error(kind, line, points) > kAcceptedError) {
    MessageFit table = line;
    table.alpha_step_s = 0.0;
    table.table = make_table(kind, points);
    if (table.table.size() >= 2 &&
        mean_error(kind, table, points) < mean_error(kind, line, points)) {
      return table;
    }
  }
  return line;
}

}  // namespace rpeg
