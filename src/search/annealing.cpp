#include "search/annealing.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "rpeg/base/error.h"
#include "search/chain_pool.h"

namespace rpeg::search {
namespace {

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

Clock::time_point later(Clock::time_point start, double seconds) {
  return start + std::chrono::duration_cast<Clock::duration>(
                     std::chrono::duration<double>(std::min(seconds, kLongestSearch_s)));
}

int thread_count(const SearchOptions& options) {
  if (options.threads > 0) return options.threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// The starts of chain i: a given start is where all chains begin; the baselines take turns.
std::vector<Plan> starts_of(const SearchRun& run, std::int64_t chain) {
  std::vector<Plan> starts = run.starts;
  const std::size_t first = run.has_start ? 1 : 0;
  const std::size_t turns = starts.size() - first;
  const auto turn = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(chain) % turns);
  const auto begin = starts.begin() + static_cast<std::ptrdiff_t>(first);
  std::rotate(begin, begin + turn, starts.end());
  return starts;
}

/// Chains with their shares of `budget`. When there are more chains than threads, every wave of
/// chains gets its share of the time.
std::vector<ChainTask> make_chains(const SearchRun& run,
                                   std::int64_t budget,
                                   std::optional<double> time_left_s) {
  const auto chains = std::min<std::int64_t>(run.config.optimizer.chains, budget);
  const std::int64_t threads = thread_count(run.options);
  const std::int64_t waves = (chains + threads - 1) / threads;
  const Clock::time_point now = Clock::now();
  std::vector<ChainTask> tasks;
  for (std::int64_t i = 0; i < chains; ++i) {
    ChainTask task;
    task.seed = derive_seed(run.config.seed, static_cast<std::uint64_t>(i));
    task.budget = budget / chains + (i < budget % chains ? 1 : 0);
    task.starts = starts_of(run, i);
    if (i >= kChainsFromBaselines && !run.has_start) task.pools = task.budget / kPoolsShare;
    task.bound_s = run.bound.period_s;
    task.top = static_cast<std::size_t>(std::max<std::int64_t>(1, run.options.top));
    if (time_left_s) {
      const double share = static_cast<double>(i / threads + 1) / static_cast<double>(waves);
      task.deadline = later(now, *time_left_s * share);
    }
    task.stop = run.options.stop;
    task.checks_scores = run.options.check_scores;
    tasks.push_back(std::move(task));
  }
  return tasks;
}

std::vector<ChainResult> run_chains(const SearchRun& run,
                                    const std::vector<ChainTask>& tasks,
                                    const Look& look) {
  return run_chains(run.space, run.profile, tasks, thread_count(run.options), look);
}

/// Evaluations that fit into the time that is left, from the speed of ever longer samples.
std::int64_t budget_of_time(const SearchRun& run, double time_s) {
  constexpr double kMostEvaluations = 1e15;
  const double enough_s = std::min(1.0, 0.05 * time_s);
  std::int64_t sample = 8 * run.config.optimizer.chains;
  while (true) {
    const Clock::time_point start = Clock::now();
    const auto tasks = make_chains(run, sample, time_s - seconds_since(run.begin));
    std::int64_t done = 0;
    for (const ChainResult& result : run_chains(run, tasks, {})) done += result.evaluations;
    const double took_s = seconds_since(start);
    const double left_s = std::max(0.0, time_s - seconds_since(run.begin));
    if (took_s >= enough_s || left_s < 0.75 * time_s || done < sample) {
      const double speed = static_cast<double>(done) / std::max(1e-9, took_s);
      return std::max(run.config.optimizer.chains,
                      static_cast<std::int64_t>(std::min(kMostEvaluations, speed * left_s)));
    }
    sample *= 2;
  }
}

/// The evaluations to do: flags first, then the configuration, then the default.
void plan_budget(const SearchRun& run, SearchStatistics& statistics) {
  const auto& asked = run.options.evaluations;
  if (asked) {
    statistics.budget = *asked;
  } else if (run.options.time_s) {
    statistics.budget = budget_of_time(run, *run.options.time_s);
    statistics.budget_from_time = true;
  } else if (run.config.optimizer.evals) {
    statistics.budget = *run.config.optimizer.evals;
  } else {
    statistics.budget = kDefaultEvaluations;
    statistics.budget_is_default = true;
  }
  if (statistics.budget < 1) {
    throw Error(ErrorKind::kUsage, "a search needs at least 1 evaluation");
  }
}

/// Of periods that are 0 while no plan fits, the shorter one.
void take_shorter(double period_s, SearchProgress* progress) {
  double& best_s = progress->best_period_s;
  if (period_s > 0.0 && (best_s <= 0.0 || period_s < best_s)) best_s = period_s;
}

/// `progress` holds what earlier chains have done.
SearchProgress look_at(const SearchRun& run,
                       const SearchStatistics& statistics,
                       const std::vector<ChainStatus>& status,
                       SearchProgress progress) {
  progress.elapsed_s = seconds_since(run.begin);
  progress.total_s = run.options.time_s.value_or(0.0);
  progress.total_evaluations = statistics.budget;
  progress.bound_s = run.bound.period_s;
  double temperatures = 0.0;
  double running = 0.0;
  for (const ChainStatus& chain : status) {
    progress.evaluations += chain.evaluations;
    const double temperature = chain.temperature;
    if (temperature > 0.0) {
      temperatures += temperature;
      running += 1.0;
    }
    take_shorter(chain.best_period_s, &progress);
  }
  if (running > 0.0) progress.temperature = temperatures / running;
  const auto response = static_cast<double>(run.config.workload.generation_length);
  if (progress.best_period_s > 0.0) {
    progress.tokens_per_s = tokens_per_iteration(run.config, response) / progress.best_period_s;
  }
  return progress;
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
std::vector<ChainTask> make_final_chains(const SearchRun& run,
                                         const std::vector<ChainResult>& explored,
                                         std::int64_t budget,
                                         std::optional<double> time_left_s) {
  const std::vector<Plan> elite = elite_of(explored);
  std::vector<ChainTask> tasks = make_chains(run, budget, time_left_s);
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
std::optional<double> time_left_s(const SearchRun& run) {
  if (!run.options.time_s) return std::nullopt;
  return *run.options.time_s - seconds_since(run.begin);
}

}  // namespace

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<ChainResult> anneal(const SearchRun& run, SearchStatistics& statistics) {
  plan_budget(run, statistics);
  const bool divides = statistics.budget >= kLeastRound * run.config.optimizer.chains;
  const double share = divides ? kExploring : 1.0;
  const auto exploring = static_cast<std::int64_t>(share * static_cast<double>(statistics.budget));
  std::optional<double> left_s = time_left_s(run);
  if (left_s) *left_s *= share;
  std::vector<ChainTask> tasks = make_chains(run, exploring, left_s);
  for (ChainTask& task : tasks) task.ends_at = share;
  statistics.chains = static_cast<std::int64_t>(tasks.size());
  SearchProgress before;
  Look look;
  if (run.options.progress) {
    look = [&](const auto& status) {
      run.options.progress(look_at(run, statistics, status, before));
    };
  }
  std::vector<ChainResult> results = run_chains(run, tasks, look);
  const bool ended = std::ranges::any_of(results, [](const ChainResult& chain) {
    return chain.end == SearchEnd::kBound || chain.end == SearchEnd::kStopped;
  });
  if (!divides || ended) return results;
  for (const ChainResult& chain : results) {
    before.evaluations += chain.evaluations;
    if (!chain.top.plans().empty()) take_shorter(chain.top.plans().front().period_s, &before);
  }
  const auto final_tasks =
      make_final_chains(run, results, statistics.budget - exploring, time_left_s(run));
  for (ChainResult& chain : run_chains(run, final_tasks, look)) {
    results.push_back(std::move(chain));
  }
  return results;
}

/// A plan is known before the bound of a large space is.
void show_first_plan(const SearchRun& run, const SearchResult& baselines) {
  SearchProgress before;
  for (const Evaluation* plan : {&baselines.greedy, &baselines.concurrent}) {
    if (plan->fits()) take_shorter(plan->metrics.iteration_time_s, &before);
  }
  if (run.options.progress) run.options.progress(look_at(run, {}, {}, before));
}

}  // namespace rpeg::search
