#include "rpeg/base/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace rpeg {
namespace {

std::string with_prefix(double value, const char* unit) {
  static constexpr std::array<const char*, 9> kPrefixes = {
      "n", "u", "m", "", "k", "M", "G", "T", "P"};
  if (value == 0.0 || !std::isfinite(value)) {
    return fmt::format("{} {}", value, unit);
  }
  int index = 3;
  double scaled = value;
  while (std::abs(scaled) >= 999.5 && index + 1 < static_cast<int>(kPrefixes.size())) {
    scaled /= 1000.0;
    ++index;
  }
  while (std::abs(scaled) < 0.9995 && index > 0) {
    scaled *= 1000.0;
    --index;
  }
  return fmt::format("{:.3g} {}{}", scaled, kPrefixes[static_cast<std::size_t>(index)], unit);
}

}  // namespace

std::string format_flop_rate(double flop_per_s) { return with_prefix(flop_per_s, "FLOP/s"); }
std::string format_bandwidth(double bytes_per_s) { return with_prefix(bytes_per_s, "B/s"); }
std::string format_seconds(double seconds) { return with_prefix(seconds, "s"); }
std::string format_bytes(double bytes) { return with_prefix(bytes, "B"); }
std::string format_exact(double value) { return fmt::format("{}", value); }

}  // namespace rpeg
