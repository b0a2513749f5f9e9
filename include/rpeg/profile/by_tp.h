#pragma once

#include <iterator>
#include <map>

namespace rpeg {

/// A value of hw.yaml by tensor-parallel size (docs/yaml/hw.md): that of the largest size in the
/// table which is not above `tp`, `plain` below all of them.
inline double value_at_tp(const std::map<int, double>& table, int tp, double plain) {
  const auto beyond = table.upper_bound(tp);
  return beyond == table.begin() ? plain : std::prev(beyond)->second;
}

}  // namespace rpeg
