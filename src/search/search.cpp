#include "rpeg/search/search.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "rpeg/base/error.h"
#include "rpeg/search/baseline.h"
#include "search/chain_pool.h"
#include "search/exhaustive.h"
#include "search/space_bound.h"
#include "search/starts.h"

namespace rpeg {
namespace {

using search::ChainResult;
using search::ChainStatus;
using search::ChainTask;
using search::Clock;

// The first chains begin at the baselines, the others each at the best of random divisions into
// pools, on which a part of their budget goes: chains that all begin alike end alike.
constexpr std::int64_t kChainsFromBaselines = 2;
constexpr std::int64_t kPoolsShare = 64;
// After three quarters of the budget all chains go on from the best plans of the best chains, at
// lower temperatures.
constexpr double kExploring = 0.75;
constexpr std::size_t kElite = 4;  // chains whose best plans are gone on from
constexpr double kFinalHeat = 0.15;
constexpr std::int64_t kLeastRound = 1000;  // evaluations of a chain; fewer are not divided
constexpr double kLongestSearch_s = 1e8;    // three years: more would not fit into the clock

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Clock::time_point later(Clock::time_point start, double seconds) {
  return start + std::chrono::duration_cast<Clock::duration>(
                     std::chrono::duration<double>(std::min(seconds, kLongestSearch_s)));
}

int thread_count(const SearchOptions& options) {
  if (options.threads > 0) return options.threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

struct Search {
  const WorkloadConfig& config;
  const HardwareProfile& profile;
  const SearchOptions& options;
  const search::Space& space;
  std::vector<Plan> starts;  ///< of the space
  bool has_start = false;    ///< the first of them is SearchOptions::start
  SpaceBound bound;
  Clock::time_point begin;
};

/// The starts of chain i: a given start is where all chains begin; the baselines take turns.
std::vector<Plan> starts_of(const Search& search, std::int64_t chain) {
  std::vector<Plan> starts = search.starts;
  const std::size_t first = search.has_start ? 1 : 0;
  const std::size_t turns = starts.size() - first;
  const auto turn = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(chain) % turns);
  const auto begin = starts.begin() + static_cast<std::ptrdiff_t>(first);
  std::rotate(begin, begin + turn, starts.end());
  return starts;
}

/// Chains with their shares of `budget`. When there are more chains than threads, every wave of
/// chains gets its share of the time.
std::vector<ChainTask> make_chains(const Search& search,
                                   std::int64_t budget,
                                   std::optional<double> time_left_s) {
  const auto chains = std::min<std::int64_t>(search.config.optimizer.chains, budget);
  const std::int64_t threads = thread_count(search.options);
  const std::int64_t waves = (chains + threads - 1) / threads;
  const Clock::time_point now = Clock::now();
  std::vector<ChainTask> tasks;
  for (std::int64_t i = 0; i < chains; ++i) {
    ChainTask task;
    task.seed = derive_seed(search.config.seed, static_cast<std::uint64_t>(i));
    task.budget = budget / chains + (i < budget % chains ? 1 : 0);
    task.starts = starts_of(search, i);
    if (i >= kChainsFromBaselines && !search.has_start) task.pools = task.budget / kPoolsShare;
    task.bound_s = search.bound.period_s;
    task.top = static_cast<std::size_t>(std::max<std::int64_t>(1, search.options.top));
    if (time_left_s) {
      const double share = static_cast<double>(i / threads + 1) / static_cast<double>(waves);
      task.deadline = later(now, *time_left_s * share);
    }
    task.stop = search.options.stop;
    task.checks_scores = search.options.check_scores;
    tasks.push_back(std::move(task));
  }
  return tasks;
}

std::vector<ChainResult> run_chains(const Search& search,
                                    const std::vector<ChainTask>& tasks,
                                    const search::Look& look) {
  return search::run_chains(
      search.space, search.profile, tasks, thread_count(search.options), look);
}

/// Evaluations that fit into the time that is left, from the speed of ever longer samples.
std::int64_t budget_of_time(const Search& search, double time_s) {
  constexpr double kMostEvaluations = 1e15;
  const double enough_s = std::min(1.0, 0.05 * time_s);
  std::int64_t sample = 8 * search.config.optimizer.chains;
  while (true) {
    const Clock::time_point start = Clock::now();
    const auto tasks = make_chains(search, sample, time_s - seconds_since(search.begin));
    std::int64_t done = 0;
    for (const ChainResult& result : run_chains(search, tasks, {})) done += result.evaluations;
    const double took_s = seconds_since(start);
    const double left_s = std::max(0.0, time_s - seconds_since(search.begin));
    if (took_s >= enough_s || left_s < 0.75 * time_s || done < sample) {
      const double speed = static_cast<double>(done) / std::max(1e-9, took_s);
      return std::max(search.config.optimizer.chains,
                      static_cast<std::int64_t>(std::min(kMostEvaluations, speed * left_s)));
    }
    sample *= 2;
  }
}

/// The evaluations to do: flags first, then the configuration, then the default.
void plan_budget(const Search& search, SearchStatistics& statistics) {
  const auto& asked = search.options.evaluations;
  if (asked) {
    statistics.budget = *asked;
  } else if (search.options.time_s) {
    statistics.budget = budget_of_time(search, *search.options.time_s);
    statistics.budget_from_time = true;
  } else if (search.config.optimizer.evals) {
    statistics.budget = *search.config.optimizer.evals;
  } else {
    statistics.budget = kDefaultEvaluations;
    statistics.budget_is_default = true;
  }
  if (statistics.budget < 1) {
    throw Error(ErrorKind::kUsage, "a search needs at least 1 evaluation");
  }
}

/// `progress` holds what earlier chains have done.
SearchProgress look_at(const Search& search,
                       const SearchStatistics& statistics,
                       const std::vector<ChainStatus>& status,
                       SearchProgress progress) {
  progress.elapsed_s = seconds_since(search.begin);
  progress.total_s = search.options.time_s.value_or(0.0);
  progress.total_evaluations = statistics.budget;
  progress.bound_s = search.bound.period_s;
  double temperatures = 0.0;
  double running = 0.0;
  for (const ChainStatus& chain : status) {
    progress.evaluations += chain.evaluations;
    const double temperature = chain.temperature;
    if (temperature > 0.0) {
      temperatures += temperature;
      running += 1.0;
    }
    const double mine = chain.best_period_s;
    if (mine > 0.0 && (progress.best_period_s <= 0.0 || mine < progress.best_period_s)) {
      progress.best_period_s = mine;
    }
  }
  if (running > 0.0) progress.temperature = temperatures / running;
  const auto response = static_cast<double>(search.config.workload.generation_length);
  if (progress.best_period_s > 0.0) {
    progress.tokens_per_s = tokens_per_iteration(search.config, response) / progress.best_period_s;
  }
  return progress;
}

/// A plan is known before the bound of a large space is.
void show_first_plan(const Search& search, const SearchResult& result) {
  SearchProgress before;
  for (const Evaluation* plan : {&result.greedy, &result.concurrent}) {
    if (!plan->fits()) continue;
    const double period_s = plan->metrics.iteration_time_s;
    if (before.best_period_s <= 0.0 || period_s < before.best_period_s) {
      before.best_period_s = period_s;
    }
  }
  if (search.options.progress) search.options.progress(look_at(search, {}, {}, before));
}

/// The end of the search is that of the chain that was cut shortest; a chain at the bound ends it
/// with a proof, and it has stalled when all chains have.
void add_up(const std::vector<ChainResult>& chains, SearchStatistics& statistics) {
  const auto all = [&](SearchEnd end) {
    return std::ranges::all_of(chains, [end](const ChainResult& c) { return c.end == end; });
  };
  const auto any = [&](SearchEnd end) {
    return std::ranges::any_of(chains, [end](const ChainResult& c) { return c.end == end; });
  };
  for (const ChainResult& chain : chains) {
    statistics.evaluations += chain.evaluations;
    statistics.hits += chain.hits;
    statistics.restarts += chain.restarts;
  }
  statistics.misses = statistics.evaluations - statistics.hits;
  statistics.end = SearchEnd::kBudget;
  for (const SearchEnd end :
       {SearchEnd::kNoNeighbours, SearchEnd::kStalled, SearchEnd::kExhausted}) {
    if (all(end)) statistics.end = end;
  }
  for (const SearchEnd end : {SearchEnd::kBound, SearchEnd::kTime, SearchEnd::kStopped}) {
    if (any(end)) statistics.end = end;
  }
}

/// The best distinct plans of all chains; among equals those of the first chain.
std::vector<Evaluation> best_plans(const std::vector<ChainResult>& chains, const Search& search) {
  search::TopPlans top = chains.front().top;
  const ChainResult* tightest = &chains.front();
  for (const ChainResult& chain : chains) {
    if (chain.least_overflow < tightest->least_overflow) tightest = &chain;
    top.merge(chain.top);
  }
  std::vector<Evaluation> best;
  for (const search::RankedPlan& plan : top.plans()) {
    best.push_back(evaluate_plan(plan.plan, search.config, search.profile));
  }
  const std::string looked = std::string("no plan that was looked at ") +
                             (search.options.pins.empty() ? "" : "and keeps the pins ");
  if (best.empty()) {
    Evaluation nearest = evaluate_plan(tightest->tightest, search.config, search.profile);
    const std::string why = nearest.priced.overflow_text;
    throw NoPlanFits(looked + "fits into memory; the one nearest to it: " + why +
                         ". More GPUs divide the state further; optimizer.zero_stage, recompute "
                         "and sequence_parallel, or smaller models and batches, need less of it",
                     nearest);
  }
  if (const std::string why = too_long_text(best.front()); !why.empty()) {
    throw NoPlanFits(looked + "is fast enough to be predicted; of the fastest, " + why,
                     best.front());
  }
  std::erase_if(best, [](const Evaluation& plan) { return !too_long_text(plan).empty(); });
  return best;
}

/// The best plans of the best chains, best first; without one that fits, the nearest to fitting.
std::vector<Plan> elite_of(const std::vector<ChainResult>& chains) {
  std::vector<const ChainResult*> ranked;
  for (const ChainResult& chain : chains) ranked.push_back(&chain);
  std::ranges::stable_sort(ranked, {}, [](const ChainResult* chain) {
    const auto& plans = chain->top.plans();
    return std::pair(chain->least_overflow, plans.empty() ? 0.0 : plans.front().objective);
  });
  std::vector<Plan> elite;
  for (const ChainResult* chain : ranked) {
    const auto& plans = chain->top.plans();
    elite.push_back(plans.empty() ? chain->tightest : plans.front().plan);
    if (elite.size() == kElite) break;
  }
  return elite;
}

/// Chains that go on from where others have ended.
std::vector<ChainTask> make_final_chains(const Search& search,
                                         const std::vector<ChainResult>& explored,
                                         std::int64_t budget,
                                         std::optional<double> time_left_s) {
  const std::vector<Plan> elite = elite_of(explored);
  std::vector<ChainTask> tasks = make_chains(search, budget, time_left_s);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].seed = derive_seed(tasks[i].seed, 1);
    tasks[i].starts = {elite[i % elite.size()]};
    tasks[i].pools = 0;
    tasks[i].heat = kFinalHeat;
    tasks[i].begins_at = kExploring;
  }
  return tasks;
}

/// Seconds that are left of the time asked for.
std::optional<double> time_left_s(const Search& search) {
  if (!search.options.time_s) return std::nullopt;
  return *search.options.time_s - seconds_since(search.begin);
}

std::vector<ChainResult> anneal(const Search& search, SearchStatistics& statistics) {
  plan_budget(search, statistics);
  const bool divides = statistics.budget >= kLeastRound * search.config.optimizer.chains;
  const double share = divides ? kExploring : 1.0;
  const auto exploring = static_cast<std::int64_t>(share * static_cast<double>(statistics.budget));
  std::optional<double> left_s = time_left_s(search);
  if (left_s) *left_s *= share;
  std::vector<ChainTask> tasks = make_chains(search, exploring, left_s);
  for (ChainTask& task : tasks) task.ends_at = share;
  statistics.chains = static_cast<std::int64_t>(tasks.size());
  SearchProgress before;
  search::Look look;
  if (search.options.progress) {
    look = [&](const auto& status) {
      search.options.progress(look_at(search, statistics, status, before));
    };
  }
  std::vector<ChainResult> results = run_chains(search, tasks, look);
  const bool ended = std::ranges::any_of(results, [](const ChainResult& chain) {
    return chain.end == SearchEnd::kBound || chain.end == SearchEnd::kStopped;
  });
  if (!divides || ended) return results;
  for (const ChainResult& chain : results) {
    before.evaluations += chain.evaluations;
    if (chain.top.plans().empty()) continue;
    const double best_s = chain.top.plans().front().period_s;
    const bool is_first = before.best_period_s <= 0.0;
    before.best_period_s = is_first ? best_s : std::min(before.best_period_s, best_s);
  }
  const auto final_tasks =
      make_final_chains(search, results, statistics.budget - exploring, time_left_s(search));
  for (ChainResult& chain : run_chains(search, final_tasks, look)) {
    results.push_back(std::move(chain));
  }
  return results;
}

std::vector<ChainResult> exhaust(const Search& search,
                                 search::Workbench& bench,
                                 SearchStatistics& statistics) {
  const search::SpaceSize size = search::space_size(bench.table);
  statistics.space_plans = size.plans;
  statistics.distinct_plans = size.distinct;
  ChainStatus status;
  const auto top = static_cast<std::size_t>(std::max<std::int64_t>(1, search.options.top));
  std::vector<ChainResult> results;
  results.push_back(search::try_all(bench, size, top, search.options.stop, status));
  statistics.budget = results.front().evaluations;
  if (results.front().least_overflow == std::numeric_limits<double>::infinity()) {
    // Stopped before the first plan: the plans made by hand are all there is.
    for (const Plan& plan : search.starts) search::look_at(bench, plan, results.front());
  }
  return results;
}

}  // namespace

NoPlanFits::NoPlanFits(std::string message, Evaluation nearest)
    : Error(ErrorKind::kInfeasible, std::move(message)), nearest_(std::move(nearest)) {}

SearchResult search_plan(const WorkloadConfig& config,
                         const HardwareProfile& profile,
                         const SearchOptions& options) {
  const search::Space space = search::build_space(config, options.pins);
  search::Workbench bench(space, profile);
  Search search{config, profile, options, space, {}, options.start.has_value(), {}, Clock::now()};
  SearchResult result;
  result.greedy = evaluate_plan(greedy_plan(config, profile), config, profile);
  result.concurrent = evaluate_plan(concurrent_plan(config, profile), config, profile);
  show_first_plan(search, result);
  search.starts = search::start_plans(bench, options.start);
  search.bound = search::bound_of(bench.table);
  result.bound = search.bound;
  const std::vector<ChainResult> chains = options.exhaustive
                                              ? exhaust(search, bench, result.statistics)
                                              : anneal(search, result.statistics);
  result.top = best_plans(chains, search);
  result.best = result.top.front();
  add_up(chains, result.statistics);
  result.statistics.wall_s = seconds_since(search.begin);
  return result;
}

}  // namespace rpeg
