#pragma once

/// The numeric keys of hw.yaml as a table, so that reading, plausibility, writing and comments say
/// the same about each.

#include <optional>
#include <string>
#include <vector>

#include "rpeg/profile/hardware_profile.h"

namespace rpeg {

/// What a number measures; decides its plausible range, its unit slips and how it is printed.
enum class Quantity {
  kFlopRate,
  kCapacity,          // bytes
  kMemoryBandwidth,   // bytes/s
  kLatency,           // seconds of a message
  kInverseBandwidth,  // seconds per byte
  kDuration,          // seconds, may be 0
  kShare,             // (0, 1]
  kEfficiency,        // relative to a measured rate; caches lift it above 1
  kRows,
  kFactor,   // at least 1
  kReserve,  // bytes, may be 0
  kUplink    // bytes/s of a node or a rack
};

struct Parameter {
  std::string key;
  Quantity quantity;
  bool required;
  double& (*field)(HardwareProfile&);
  std::string meaning;  ///< in the comment behind the value
};

/// In the order in which the file holds them.
const std::vector<Parameter>& hardware_parameters();
double value_of(const Parameter& parameter, const HardwareProfile& profile);

struct PlausibleRange {
  double low;
  double high;
};
PlausibleRange plausible_range(Quantity quantity);
/// "440 TFLOP/s", "220 GB/s" (of an inverse bandwidth), "78 us", "0.63".
std::string human_text(Quantity quantity, double value);
/// For a number outside its range: ": is it in TFLOP/s? then write 4.4e+14", or "" without an idea.
std::string slip_hint(Quantity quantity, double value);

/// The profile of "h100-sxm", …, or nothing.
std::optional<HardwareProfile> builtin_profile(const std::string& name);
const std::vector<std::string>& builtin_names();

}  // namespace rpeg
