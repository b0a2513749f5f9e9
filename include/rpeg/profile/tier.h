#pragma once

#include <cstddef>

namespace rpeg {

/// Network tiers, fastest first: inside a node, between nodes of a rack, between racks.
enum class Tier { kNode, kRack, kCluster };
inline constexpr std::size_t kTiers = 3;
/// As in the keys of files: g, n, r.
inline const char* to_string(Tier tier) {
  constexpr const char* kNames[kTiers] = {"g", "n", "r"};
  return kNames[static_cast<std::size_t>(tier)];
}

}  // namespace rpeg
