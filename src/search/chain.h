#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "rpeg/base/rng.h"
#include "rpeg/search/search.h"
#include "search/moves.h"

namespace rpeg::search {

using Clock = std::chrono::steady_clock;

/// What other threads may see of a running chain.
struct ChainStatus {
  std::atomic<std::int64_t> evaluations{0};
  std::atomic<double> temperature{0.0};    ///< 0: not running
  std::atomic<double> best_period_s{0.0};  ///< 0: no plan that fits yet
};

/// What the search keeps of an evaluation.
struct Score {
  double objective = 0.0;
  double overflow = 0.0;
  double period_s = 0.0;
  std::vector<float> critical;  ///< share of every vertex in the critical cycle
};

struct ChainTask {
  std::uint64_t seed = 0;
  std::int64_t budget = 0;  ///< evaluations
  Plan start;
  std::optional<Clock::time_point> deadline;
  const std::atomic<bool>* stop = nullptr;
};

struct ChainResult {
  std::optional<Plan> best;  ///< the best plan that fits
  double best_objective = 0.0;
  Plan tightest;  ///< the plan of least overflow seen
  double least_overflow = 0.0;
  std::int64_t evaluations = 0;
  std::int64_t hits = 0;
  std::int64_t restarts = 0;
  SearchEnd end = SearchEnd::kBudget;
};

/// Runs one annealing chain to the end of its budget.
ChainResult run_chain(SubPlanTable& table, const ChainTask& task, ChainStatus& status);

/// The canonical text of a plan: equal for equal plans only.
std::string plan_key(const Plan& plan);

}  // namespace rpeg::search
