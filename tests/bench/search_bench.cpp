// How near the search comes to the best plan known, and the best plan to the bound of its space.
//   rpeg_bench_search [--jobs NAME,…] [--evals N] [--seeds N] [--climb N] [--verbose] [--large]
// For every job: the best plan known (of all seeds and of an independent random-restart hill
// climber that looks at --climb plans), the share of seeds within 1 % of it, the bound, the gap.
// --verbose: the plan of every seed. --large: time to the first plan that fits and memory of a
// search on 32,768 GPUs instead.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench_configs.h"
#include "hill_climber.h"
#include "rpeg/search/search.h"

namespace rpeg::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Flags {
  std::string jobs;  ///< comma-separated; empty: all
  std::int64_t evals = 400'000;
  std::int64_t seeds = 20;
  std::int64_t climb = 4'000'000;
  bool large = false;
  bool verbose = false;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double resident_mb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

const char* name_of(SearchEnd end) {
  switch (end) {
    case SearchEnd::kBudget:
      return "budget";
    case SearchEnd::kTime:
      return "time";
    case SearchEnd::kStopped:
      return "stopped";
    case SearchEnd::kNoNeighbours:
      return "no_neighbours";
    case SearchEnd::kBound:
      return "bound";
    case SearchEnd::kStalled:
      return "stalled";
    case SearchEnd::kExhausted:
      return "exhausted";
  }
  return "";
}

void print_plan(const Plan& plan) {
  std::printf("  plan: tau %d/%d share %d cuts %u",
              static_cast<int>(plan.structure.tau_actor),
              static_cast<int>(plan.structure.tau_critic),
              plan.structure.ac_share ? 1 : 0,
              plan.structure.cuts);
  for (const VertexPlan& v : plan.vertices) {
    std::printf("; %d,%d,%d m%d %s",
                v.parallelism.dp,
                v.parallelism.pp,
                v.parallelism.tp,
                static_cast<int>(v.micro_batches),
                placement_text(v.placement).c_str());
  }
  std::printf("\n");
}

void measure(const Job& job, const Flags& flags) {
  std::vector<double> periods;
  Plan best;
  double best_s = 0.0;
  SearchOptions options;
  options.evaluations = flags.evals;
  const auto start = Clock::now();
  std::int64_t evaluations = 0;
  SpaceBound bound;
  SearchEnd end = SearchEnd::kBudget;
  double greedy_s = 0.0;
  for (std::int64_t seed = 0; seed < flags.seeds; ++seed) {
    WorkloadConfig config = job.config;
    config.seed = static_cast<std::uint64_t>(1000 + seed);
    const SearchResult result = search_plan(config, job.profile, options);
    periods.push_back(result.best.steady.period_s);
    evaluations += result.statistics.evaluations;
    bound = result.bound;
    end = result.statistics.end;
    greedy_s = result.greedy.fits() ? result.greedy.steady.period_s : 0.0;
    if (flags.verbose) {
      std::printf("  seed %d: %.6f\n", static_cast<int>(config.seed), periods.back());
      print_plan(result.best.plan);
    }
    if (best_s > 0.0 && periods.back() >= best_s) continue;
    best_s = periods.back();
    best = result.best.plan;
  }
  const double took_s = seconds_since(start);
  const Climbed climbed = climb(job, 7, flags.climb);
  double known_s = best_s;
  if (climbed.period_s > 0.0) known_s = std::min(known_s, climbed.period_s);
  std::ranges::sort(periods);
  const auto within = std::ranges::count_if(periods, [&](double p) { return p <= 1.01 * known_s; });
  std::printf(
      "%s: {known_s: %.6f, climber_s: %.6f, climbs: %d, best_s: %.6f, median_s: %.6f, worst_s: "
      "%.6f, within_1_percent: %d/%d, bound_s: %.6f, gap_percent: %.1f, greedy_s: %.6f, "
      "evaluations_per_s: %.0f, end: %s, bound: %s}\n",
      job.name.c_str(),
      known_s,
      climbed.period_s,
      static_cast<int>(climbed.climbs),
      periods.front(),
      periods[periods.size() / 2],
      periods.back(),
      static_cast<int>(within),
      static_cast<int>(periods.size()),
      bound.period_s,
      100.0 * (known_s / bound.period_s - 1.0),
      greedy_s,
      static_cast<double>(evaluations) / took_s,
      name_of(end),
      bound.reason.c_str());
  print_plan(best);
  if (climbed.period_s > 0.0 && climbed.period_s < best_s) print_plan(climbed.plan);
  std::fflush(stdout);
}

void measure_largest(const Flags& flags, bool one_rack) {
  const Job job = largest_job(one_rack);
  SearchOptions options;
  options.evaluations = flags.evals;
  const auto start = Clock::now();
  double first_s = 0.0;
  options.progress = [&](const SearchProgress& progress) {
    if (first_s <= 0.0 && progress.best_period_s > 0.0) first_s = seconds_since(start);
  };
  const SearchResult result = search_plan(job.config, job.profile, options);
  if (first_s <= 0.0) first_s = seconds_since(start);
  std::printf(
      "%s_%s: {first_plan_s: %.2f, wall_s: %.2f, evaluations: %d, max_rss_mb: %.0f, "
      "best_s: %.3f, greedy_s: %.3f, bound_s: %.3f, bound: %s}\n",
      job.name.c_str(),
      one_rack ? "one_rack" : "64_racks",
      first_s,
      seconds_since(start),
      static_cast<int>(result.statistics.evaluations),
      resident_mb(),
      result.best.steady.period_s,
      result.greedy.steady.period_s,
      result.bound.period_s,
      result.bound.reason.c_str());
  print_plan(result.best.plan);
}

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (flag == "--jobs") flags.jobs = "," + value() + ",";
    if (flag == "--evals") flags.evals = std::atoll(value().c_str());
    if (flag == "--seeds") flags.seeds = std::atoll(value().c_str());
    if (flag == "--climb") flags.climb = std::atoll(value().c_str());
    if (flag == "--large") flags.large = true;
    if (flag == "--verbose") flags.verbose = true;
    if (flag.starts_with("--benchmark_min_time"))
      flags = {"", 2000, 1, 2000, false, false};  // of ctest
  }
  return flags;
}

int run(const Flags& flags) {
  if (flags.large) {
    measure_largest(flags, false);
    measure_largest(flags, true);
    return 0;
  }
  for (const Job& job : search_jobs()) {
    const bool wanted =
        flags.jobs.empty() || flags.jobs.find("," + job.name + ",") != std::string::npos;
    if (wanted) measure(job, flags);
  }
  return 0;
}

}  // namespace
}  // namespace rpeg::bench

int main(int argc, char** argv) { return rpeg::bench::run(rpeg::bench::parse(argc, argv)); }
