// Evaluations per second on one core, on states that the annealer visits: the published sample (32
// GPUs, PPO, six vertices), without cuts and with two, and the same job on 32,768 GPUs.
//   build/release/bin/rpeg_bench_evaluator [passes]
// Prints one YAML record, by processor time. "warm": the pieces of all states are known; "cold":
// the first pass.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "rpeg/base/rng.h"
#include "rpeg/search/baseline.h"
#include "search/evaluator.h"
#include "search/moves.h"

namespace rpeg {
namespace {

using search::Evaluator;
using search::Score;

constexpr std::size_t kStates = 20000;

/// Processor time of this process: other programs on the machine count less than by the wall clock.
double used_s() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

std::size_t draw_focus(const Score& score, std::size_t vertices, Rng& rng) {
  if (rng.uniform() < 0.2) {
    return static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(vertices)));
  }
  double left = rng.uniform();
  for (std::size_t v = 0; v + 1 < vertices; ++v) {
    left -= static_cast<double>(score.critical[v]);
    if (left < 0.0) return v;
  }
  return vertices - 1;
}

/// All candidates that annealing from the greedy plan prices, in order.
std::vector<Plan> record_states(const WorkloadConfig& config, const HardwareProfile& profile) {
  search::Space space = search::plain_space(config);
  space.tau_actor = config.optimizer.staleness_actor;
  search::SubPlanTable table(space, profile);
  search::Mover mover(table);
  Evaluator evaluator(config, profile);
  Rng rng(config.seed);
  const auto energy = [](const Score& score) { return score.objective + 3.0 * score.overflow; };
  Plan current = greedy_plan(config, profile);
  Score now = evaluator.score(current);
  std::vector<Plan> states;
  while (states.size() < kStates) {
    const double share = static_cast<double>(states.size()) / static_cast<double>(kStates);
    const double temperature =
        config.optimizer.t_init * std::pow(config.optimizer.t_min / config.optimizer.t_init, share);
    const std::size_t focus = draw_focus(now, current.vertices.size(), rng);
    std::optional<Plan> best;
    Score best_score;
    Plan plan;
    for (std::int64_t i = 0; i < config.optimizer.k_x; ++i) {
      if (!mover.draw(current, focus, rng, plan)) continue;
      const Score score = evaluator.score(plan);
      states.push_back(plan);
      if (best && energy(score) >= energy(best_score)) continue;
      best = plan;
      best_score = score;
    }
    if (!best) continue;
    const double worse = energy(best_score) - energy(now);
    if (worse > 0.0 && rng.uniform() >= std::exp(-worse / temperature)) continue;
    current = *best;
    now = best_score;
  }
  return states;
}

/// States with an evaluator that is timed on them.
struct Case {
  Case(const WorkloadConfig& job, const HardwareProfile& profile, std::uint32_t cuts)
      : config(job), states(record_states(config, profile)), evaluator(config, profile) {
    for (Plan& plan : states) plan.structure.cuts = cuts;
    cold = pass();
  }

  /// Evaluations per second of one pass over all states.
  double pass() {
    const double start = used_s();
    for (const Plan& plan : states) sum += evaluator.score(plan).period_s;
    return static_cast<double>(states.size()) / (used_s() - start);
  }
  void measure() { warm.push_back(pass()); }

  double quantile(double share) const {
    std::vector<double> sorted = warm;
    std::ranges::sort(sorted);
    return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
  }

  WorkloadConfig config;
  std::vector<Plan> states;
  Evaluator evaluator;
  double cold = 0.0;
  std::vector<double> warm;
  double sum = 0.0;  ///< so that nothing is optimised away
};

double full_evaluations_per_s(const Case& job, const HardwareProfile& profile) {
  constexpr std::size_t kEvery = 10;
  const double start = used_s();
  std::size_t count = 0;
  for (std::size_t i = 0; i < job.states.size(); i += kEvery, ++count) {
    search::check_score(
        search::full_score(job.states[i], job.config, profile), job.states[i], job.config, profile);
  }
  return 2.0 * static_cast<double>(count) / (used_s() - start);
}

void print(const char* name, const Case& job) {
  std::printf("%s: {cold: %.0f, warm_min: %.0f, warm_median: %.0f, warm_max: %.0f}\n",
              name,
              job.cold,
              job.quantile(0.0),
              job.quantile(0.5),
              job.quantile(1.0));
}

int run(int passes) {
  const HardwareProfile profile = load_hardware_profile("builtin:h100-sxm");
  WorkloadConfig config = load_workload_config(RPEG_BENCH_WORKLOAD);
  Case plain(config, profile, 0);
  Case cut(config, profile, 0b11);
  config.hardware.racks = 64;
  config.hardware.nodes_per_rack = 64;
  config.hardware.gpus_per_node = 8;
  config.workload.batch_size *= 256;
  Case large(config, profile, 0);
  for (int i = 0; i < passes; ++i) {
    plain.measure();
    large.measure();
    cut.measure();
  }
  const double full = full_evaluations_per_s(plain, profile);
  std::printf("unit: evaluations/s\nstates: %zu\npasses: %d\n", kStates, passes);
  print("gpus_32", plain);
  print("gpus_32_two_cuts", cut);
  print("gpus_32768", large);
  std::printf("time_ratio_32768_to_32: %.3f\n", plain.quantile(0.5) / large.quantile(0.5));
  std::printf("evaluate_plan: %.0f\nspeedup_over_evaluate_plan: %.1f\nchecksum: %.9g\n",
              full,
              plain.quantile(0.5) / full,
              plain.sum + cut.sum + large.sum);
  return 0;
}

}  // namespace
}  // namespace rpeg

int main(int argc, char** argv) {
  const int passes = argc > 1 ? std::atoi(argv[1]) : 0;
  return rpeg::run(passes > 0 ? passes : 15);
}
