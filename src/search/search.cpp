#include "rpeg/search/search.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "rpeg/base/error.h"
#include "rpeg/search/baseline.h"
#include "search/annealing.h"
#include "search/exhaustive.h"
#include "search/space_bound.h"
#include "search/starts.h"

namespace rpeg {
namespace {

using search::ChainResult;
using search::ChainStatus;
using search::Clock;

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
std::vector<Evaluation> best_plans(const std::vector<ChainResult>& chains,
                                   const search::SearchRun& run) {
  search::TopPlans top = chains.front().top;
  const ChainResult* tightest = &chains.front();
  for (const ChainResult& chain : chains) {
    if (chain.least_overflow < tightest->least_overflow) tightest = &chain;
    top.merge(chain.top);
  }
  std::vector<Evaluation> best;
  for (const search::RankedPlan& plan : top.plans()) {
    best.push_back(evaluate_plan(plan.plan, run.config, run.profile));
  }
  const std::string looked = std::string("no plan that was looked at ") +
                             (run.options.pins.empty() ? "" : "and keeps the pins ");
  if (best.empty()) {
    Evaluation nearest = evaluate_plan(tightest->tightest, run.config, run.profile);
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

std::vector<ChainResult> exhaust(const search::SearchRun& run,
                                 search::Workbench& bench,
                                 SearchStatistics& statistics) {
  const search::SpaceSize size = search::space_size(bench.table);
  statistics.space_plans = size.plans;
  statistics.distinct_plans = size.distinct;
  ChainStatus status;
  const auto top = static_cast<std::size_t>(std::max<std::int64_t>(1, run.options.top));
  std::vector<ChainResult> results;
  results.push_back(search::try_all(bench, size, top, run.options.stop, status));
  statistics.budget = results.front().evaluations;
  if (results.front().least_overflow == std::numeric_limits<double>::infinity()) {
    // Stopped before the first plan: the plans made by hand are all there is.
    for (const Plan& plan : run.starts) search::look_at(bench, plan, results.front());
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
  search::SearchRun run{
      config, profile, options, space, {}, options.start.has_value(), {}, Clock::now()};
  SearchResult result;
  result.greedy = evaluate_plan(greedy_plan(config, profile), config, profile);
  result.concurrent = evaluate_plan(concurrent_plan(config, profile), config, profile);
  search::show_first_plan(run, result);
  run.starts = search::start_plans(bench, options.start);
  run.bound = search::bound_of(bench.table);
  result.bound = run.bound;
  const std::vector<ChainResult> chains = options.exhaustive
                                              ? exhaust(run, bench, result.statistics)
                                              : search::anneal(run, result.statistics);
  result.top = best_plans(chains, run);
  result.best = result.top.front();
  add_up(chains, result.statistics);
  result.statistics.wall_s = search::seconds_since(run.begin);
  return result;
}

}  // namespace rpeg
