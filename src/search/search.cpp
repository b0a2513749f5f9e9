#include "rpeg/search/search.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "rpeg/base/error.h"
#include "search/baselines.h"
#include "search/chain.h"

namespace rpeg {
namespace {

using search::ChainResult;
using search::ChainStatus;
using search::ChainTask;
using search::Clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Clock::time_point later(Clock::time_point start, double seconds) {
  return start +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

int thread_count(const SearchOptions& options) {
  if (options.threads > 0) return options.threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

using Look = std::function<void(const std::vector<ChainStatus>&)>;

/// Runs chains on a few threads; result i is that of chain i, whoever ran it and when.
class ChainPool {
 public:
  ChainPool(search::SubPlanTable& table, const std::vector<ChainTask>& tasks, int threads)
      : table_(table), tasks_(tasks), results_(tasks.size()), status_(tasks.size()) {
    running_ = std::min(static_cast<std::size_t>(threads), tasks.size());
    for (std::size_t i = running_; i > 0; --i) threads_.emplace_back([this] { work(); });
  }

  /// Calls `look` now and then until all chains have ended, then rethrows what a chain threw.
  std::vector<ChainResult> wait(const Look& look) {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, kLookEvery, [&] { return running_ == 0; })) {
      if (look) look(status_);
    }
    if (failure_) std::rethrow_exception(failure_);
    return std::move(results_);
  }

 private:
  static constexpr std::chrono::milliseconds kLookEvery{200};

  void work() {
    try {
      for (std::size_t i = next_++; i < tasks_.size(); i = next_++) {
        results_[i] = search::run_chain(table_, tasks_[i], status_[i]);
      }
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      failure_ = std::current_exception();
      next_ = tasks_.size();
    }
    const std::scoped_lock lock(mutex_);
    --running_;
    ended_.notify_all();
  }

  search::SubPlanTable& table_;
  const std::vector<ChainTask>& tasks_;
  std::vector<ChainResult> results_;
  std::vector<ChainStatus> status_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t running_ = 0;
  std::exception_ptr failure_;
  std::vector<std::jthread> threads_;  // last: joined before what they use is destroyed
};

struct Search {
  const WorkloadConfig& config;
  const SearchOptions& options;
  search::SubPlanTable& table;
  std::vector<Plan> starts;
  Clock::time_point begin;
};

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
    task.start = search.starts[static_cast<std::size_t>(i) % search.starts.size()];
    if (time_left_s) {
      const double share = static_cast<double>(i / threads + 1) / static_cast<double>(waves);
      task.deadline = later(now, *time_left_s * share);
    }
    task.stop = search.options.stop;
    tasks.push_back(std::move(task));
  }
  return tasks;
}

std::vector<ChainResult> run_chains(const Search& search,
                                    const std::vector<ChainTask>& tasks,
                                    const Look& look) {
  return ChainPool(search.table, tasks, thread_count(search.options)).wait(look);
}

/// Evaluations that fit into the time that is left, from the speed of ever longer samples.
std::int64_t budget_of_time(const Search& search, double time_s) {
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
      return std::max(search.config.optimizer.chains, static_cast<std::int64_t>(speed * left_s));
    }
    sample *= 2;
  }
}

/// The evaluations to do: flags first, then the configuration, then the default.
SearchStatistics plan_budget(const Search& search) {
  SearchStatistics statistics;
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
  return statistics;
}

SearchProgress look_at(const Search& search,
                       const SearchStatistics& statistics,
                       const std::vector<ChainStatus>& status) {
  SearchProgress progress;
  progress.elapsed_s = seconds_since(search.begin);
  progress.total_s = search.options.time_s.value_or(0.0);
  progress.total_evaluations = statistics.budget;
  double temperatures = 0.0;
  double running = 0.0;
  double period_s = 0.0;
  for (const ChainStatus& chain : status) {
    progress.evaluations += chain.evaluations;
    const double temperature = chain.temperature;
    if (temperature > 0.0) {
      temperatures += temperature;
      running += 1.0;
    }
    const double mine = chain.best_period_s;
    if (mine > 0.0 && (period_s <= 0.0 || mine < period_s)) period_s = mine;
  }
  if (running > 0.0) progress.temperature = temperatures / running;
  const auto response = static_cast<double>(search.config.workload.generation_length);
  if (period_s > 0.0) {
    progress.tokens_per_s = tokens_per_iteration(search.config, response) / period_s;
  }
  return progress;
}

/// The end of the search is that of the chain that was cut shortest.
void add_up(const std::vector<ChainResult>& chains, SearchStatistics& statistics) {
  statistics.chains = static_cast<std::int64_t>(chains.size());
  bool all_without_neighbours = true;
  for (const ChainResult& chain : chains) {
    statistics.evaluations += chain.evaluations;
    statistics.hits += chain.hits;
    statistics.restarts += chain.restarts;
    all_without_neighbours &= chain.end == SearchEnd::kNoNeighbours;
    if (chain.end == SearchEnd::kStopped) statistics.end = SearchEnd::kStopped;
    if (chain.end == SearchEnd::kTime && statistics.end == SearchEnd::kBudget) {
      statistics.end = SearchEnd::kTime;
    }
  }
  if (all_without_neighbours) statistics.end = SearchEnd::kNoNeighbours;
  statistics.misses = statistics.evaluations - statistics.hits;
}

/// The best plan of all chains; among equals that of the first chain.
const Plan& best_plan(const std::vector<ChainResult>& chains, const Search& search) {
  const ChainResult* best = nullptr;
  const ChainResult* tightest = &chains.front();
  for (const ChainResult& chain : chains) {
    if (chain.least_overflow < tightest->least_overflow) tightest = &chain;
    if (chain.best && (best == nullptr || chain.best_objective < best->best_objective)) {
      best = &chain;
    }
  }
  if (best != nullptr) return *best->best;
  const Evaluation nearest =
      evaluate_plan(tightest->tightest, search.config, search.table.profile());
  throw Error(ErrorKind::kInfeasible,
              "no plan that was looked at fits into memory; the one nearest to it: " +
                  nearest.priced.overflow_text);
}

}  // namespace

SearchResult search_plan(const WorkloadConfig& config,
                         const HardwareProfile& profile,
                         const SearchOptions& options) {
  search::SubPlanTable table(config, profile);
  Search search{config, options, table, {}, Clock::now()};
  search.starts = {search::greedy(table), search::concurrent(table)};
  SearchResult result;
  result.greedy = evaluate_plan(search.starts[0], config, profile);
  result.concurrent = evaluate_plan(search.starts[1], config, profile);
  result.statistics = plan_budget(search);
  std::optional<double> left_s;
  if (options.time_s) left_s = *options.time_s - seconds_since(search.begin);
  const auto tasks = make_chains(search, result.statistics.budget, left_s);
  Look look;
  if (options.progress) {
    look = [&](const auto& status) {
      options.progress(look_at(search, result.statistics, status));
    };
  }
  const std::vector<ChainResult> chains = run_chains(search, tasks, look);
  result.best = evaluate_plan(best_plan(chains, search), config, profile);
  add_up(chains, result.statistics);
  result.statistics.wall_s = seconds_since(search.begin);
  return result;
}

}  // namespace rpeg
