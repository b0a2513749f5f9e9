#pragma once

#include <cstdint>

#include "bench_configs.h"
#include "rpeg/plan/plan.h"

namespace rpeg::bench {

struct Climbed {
  Plan plan;
  double period_s = 0.0;  ///< 0: no plan that fits was found
  std::int64_t climbs = 0;
};

/// Random-restart hill climbing with first improvement: moves, restarts and acceptance share no
/// code with the search, only the evaluation. Runs for `evaluations` plans.
Climbed climb(const Job& job, std::uint64_t seed, std::int64_t evaluations);

}  // namespace rpeg::bench
