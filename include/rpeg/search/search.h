#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "rpeg/base/error.h"
#include "rpeg/search/bound.h"
#include "rpeg/search/evaluation.h"

namespace rpeg {

/// Evaluations of a search without --evals, --time or optimizer.evals.
inline constexpr std::int64_t kDefaultEvaluations = 20000;

/// A look at a running search.
struct SearchProgress {
  double elapsed_s = 0.0;
  double total_s = 0.0;  ///< 0: the search is limited by evaluations
  std::int64_t evaluations = 0;
  std::int64_t total_evaluations = 0;
  double temperature = 0.0;    ///< mean over the running chains
  double tokens_per_s = 0.0;   ///< of the best plan so far; 0: none fits yet
  double best_period_s = 0.0;  ///< its period; 0: none fits yet
  double bound_s = 0.0;        ///< SpaceBound::period_s: best_period_s / bound_s − 1 is the gap
};

/// A decision that every plan of a search must keep.
struct Pin {
  std::string vertex;  ///< name in the uncut graph, for example "g_pi"
  std::optional<Parallelism> parallelism;
  std::optional<std::int64_t> micro_batches;
  std::optional<Placement> placement;
};
/// Parses "g_pi=4,1,2", "g_pi=r0 n[0-1] g[0-3]", "g_pi=m8", or several of them joined by "/":
/// "g_pi=4,1,2/m1/r0 n[0-1] g[0-3]". Throws kUsage.
Pin parse_pin(const std::string& text);

struct SearchOptions {
  std::optional<std::int64_t> evaluations;  ///< total over the chains
  std::optional<Plan> start;                ///< where every chain begins, besides the baselines
  std::vector<Pin> pins;
  std::int64_t top = 1;  ///< best distinct plans to keep
  /// Compares every remembered score with the evaluation from scratch, about ten times as slow;
  /// throws kInternal at the first that differs.
  bool check_scores = false;
  bool exhaustive = false;       ///< try every plan instead of annealing; for small spaces
  std::optional<double> time_s;  ///< wall clock; overrides optimizer.evals
  int threads = 0;               ///< 0: as many as the hardware runs at once
  const std::atomic<bool>* stop = nullptr;  ///< when it becomes true the search ends early
  std::function<void(const SearchProgress&)> progress;  ///< called a few times a second
};

/// kBound: the best plan attains the bound of the space; kStalled: no chain has improved for the
/// last third of the budget or more; kExhausted: every plan was tried.
enum class SearchEnd { kBudget, kTime, kStopped, kNoNeighbours, kBound, kStalled, kExhausted };

struct SearchStatistics {
  double wall_s = 0.0;
  std::int64_t evaluations = 0;  ///< candidates priced, cache hits included
  std::int64_t budget = 0;       ///< evaluations asked for, or derived from the time
  bool budget_from_time = false;
  bool budget_is_default = false;
  std::int64_t hits = 0;
  std::int64_t misses = 0;
  std::int64_t restarts = 0;
  std::int64_t chains = 0;      ///< 0: every plan was tried
  double space_plans = 0.0;     ///< when every plan was tried: plans of the space,
  double distinct_plans = 0.0;  ///< … and those that symmetry does not make equal
  SearchEnd end = SearchEnd::kBudget;
};

struct SearchResult {
  Evaluation greedy;      ///< may not fit
  Evaluation concurrent;  ///< may not fit
  Evaluation best;        ///< fits
  std::vector<Evaluation>
      top;  ///< the best distinct plans, `best` first; SearchOptions::top or fewer
  SpaceBound bound;
  SearchStatistics statistics;
};

/// No plan of the space fits, or none ends within the times that are compared. Shows how near the
/// search came, for the reasons.
class NoPlanFits : public Error {
 public:
  NoPlanFits(std::string message, Evaluation nearest);
  const Evaluation& nearest() const { return nearest_; }

 private:
  Evaluation nearest_;
};

/// Simulated annealing from the baselines, in optimizer.chains independent chains. The plan depends
/// on the configuration, its seed and the number of evaluations, never on threads or their timing
/// (unless time or `stop` cut the search short). Throws NoPlanFits with the tightest
/// violation when no plan fits.
SearchResult search_plan(const WorkloadConfig& config,
                         const HardwareProfile& profile,
                         const SearchOptions& options);

}  // namespace rpeg
