#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "rpeg/base/rng.h"
#include "rpeg/search/search.h"
#include "search/evaluator.h"
#include "search/sub_plans.h"
#include "search/top_plans.h"

namespace rpeg::search {

using Clock = std::chrono::steady_clock;

/// What other threads may see of a running chain.
struct ChainStatus {
  std::atomic<std::int64_t> evaluations{0};
  std::atomic<double> temperature{0.0};    ///< 0: not running
  std::atomic<double> best_period_s{0.0};  ///< 0: no plan that fits yet
};

struct ChainTask {
  std::uint64_t seed = 0;
  std::int64_t budget = 0;   ///< evaluations
  std::vector<Plan> starts;  ///< all are scored; the walk begins at the first
  /// Evaluations of random divisions into pools before the walk; it begins at the best of them.
  std::int64_t pools = 0;
  double heat = 1.0;       ///< factor of all temperatures
  double begins_at = 0.0;  ///< progress of the search when the chain begins, and when it ends
  double ends_at = 1.0;
  bool checks_scores = false;  ///< compares every score with the evaluation from scratch
  double bound_s = 0.0;        ///< a period of this much ends the chain: nothing is better
  std::size_t top = 1;         ///< plans to keep
  std::optional<Clock::time_point> deadline;
  const std::atomic<bool>* stop = nullptr;
};

struct ChainResult {
  TopPlans top{1};  ///< plans that fit
  Plan tightest;    ///< the plan of least overflow seen
  double least_overflow = 0.0;
  std::int64_t evaluations = 0;
  std::int64_t hits = 0;
  std::int64_t restarts = 0;
  std::int64_t accepted = 0;  ///< proposals
  SearchEnd end = SearchEnd::kBudget;
};

/// What the chains of one thread share, one chain after another: memories whose content is a
/// function of what is asked, never of who asked before.
struct Workbench {
  SubPlanTable table;
  Evaluator evaluator;
  Workbench(const Space& space, const HardwareProfile& profile)
      : table(space, profile), evaluator(*space.config, profile) {}
};

/// Runs one annealing chain to the end of its budget.
ChainResult run_chain(Workbench& bench, const ChainTask& task, ChainStatus& status);

}  // namespace rpeg::search
