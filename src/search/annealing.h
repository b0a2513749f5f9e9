#pragma once

#include <vector>

#include "rpeg/search/search.h"
#include "search/chain.h"

namespace rpeg::search {

/// What every part of a search knows.
struct SearchRun {
  const WorkloadConfig& config;
  const HardwareProfile& profile;
  const SearchOptions& options;
  const Space& space;
  std::vector<Plan> starts;  ///< of the space
  bool has_start = false;    ///< the first of them is SearchOptions::start
  SpaceBound bound;
  Clock::time_point begin;
};

double seconds_since(Clock::time_point start);

/// Simulated annealing in optimizer.chains chains, in two rounds when the budget is worth it. Sets
/// the budget and the number of chains of `statistics`. Returns what the chains of all rounds
/// found.
std::vector<ChainResult> anneal(const SearchRun& run, SearchStatistics& statistics);

/// Shows a plan that is known before any chain has begun: the best of the two baselines that fits.
void show_first_plan(const SearchRun& run, const SearchResult& baselines);

}  // namespace rpeg::search
