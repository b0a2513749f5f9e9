#include "rpeg/plan/plan_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace rpeg {

std::string range_text(const Range& range) {
  return fmt::format("[{}-{}]", range.first, range.last);
}

std::string split_text(const Parallelism& split) {
  return fmt::format("({},{},{})", split.dp, split.pp, split.tp);
}

std::string cuts_text(const Structure& structure, const WorkloadSpec& workload) {
  std::vector<std::string> shares;
  for (std::size_t i = 0; i + 1 < workload.gen_quantiles.size(); ++i) {
    if ((structure.cuts >> i & 1U) == 0) continue;
    shares.push_back(fmt::format("{:.4g}", workload.gen_quantiles[i].probability));
  }
  return fmt::format("[{}]", fmt::join(shares, ", "));
}

}  // namespace rpeg
