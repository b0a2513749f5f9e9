#include "rpeg/base/text.h"

#include <algorithm>
#include <numeric>

namespace rpeg {
namespace {

/// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours cost 1.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);  // row i − 2
  std::vector<std::size_t> above(b.size() + 1);   // row i − 1
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substitute});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = above;
    above = row;
  }
  return above.back();
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::size_t best = std::max<std::size_t>(1, word.size() / 3) + 1;
  std::string result;
  for (const auto& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best) {
      best = distance;
      result = candidate;
    }
  }
  return result;
}

std::string version() { return RPEG_VERSION; }

}  // namespace rpeg
