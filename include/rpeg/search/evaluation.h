#pragma once

/// Module `search`: finds the plan of least iteration time (docs/search.md). In: a workload
/// configuration and a hardware profile. Out: the best plan with its evaluation, and two baselines.
/// Start at search.h; this header says what one plan is worth, baseline.h what one would do by
/// hand.

#include <optional>
#include <string>
#include <vector>

#include "rpeg/cost/cost_model.h"
#include "rpeg/plan/plan.h"
#include "rpeg/plan/plan_file.h"
#include "rpeg/profile/hardware_profile.h"
#include "rpeg/sim/simulator.h"
#include "rpeg/spec/workload_config.h"

namespace rpeg {

/// What the report prints about a plan.
struct PlanMetrics {
  double iteration_time_s = 0.0;        ///< λ
  double tokens_per_s = 0.0;            ///< every response counted at generation_length
  double effective_tokens_per_s = 0.0;  ///< responses counted at their expected length
  double flop_per_s = 0.0;              ///< model FLOPs, training ×3, no recomputation
  double gpu_utilization = 0.0;         ///< busy GPU·time / (active GPUs · λ), bubbles are busy
  double active_gpus = 0.0;             ///< GPUs that at least one vertex uses
  double peak_bytes = 0.0;              ///< of the fullest GPU
  std::optional<double> cost_per_million_tokens;  ///< when hardware.gpu_hour_price is given
};

/// A plan and all that follows from it.
struct Evaluation {
  Plan plan;
  PricedPlan priced;
  SteadyState steady;
  PlanMetrics metrics;
  bool fits() const { return priced.overflow == 0.0; }
};

/// Prices and simulates a structurally valid plan.
Evaluation evaluate_plan(const Plan& plan,
                         const WorkloadConfig& config,
                         const HardwareProfile& profile);

/// Names the longest task when it exceeds kLongestTask_s, so that the period is no prediction; ""
/// otherwise.
std::string too_long_text(const Evaluation& evaluation);

/// What the search minimises, before the memory penalty: ln λ, or ln(GPUs · λ) for the objective
/// `cost` (price and tokens are the same for every plan).
double plan_objective(const Evaluation& evaluation, const WorkloadConfig& config);

/// Share of each vertex in the critical cycle, sum 1 (a transfer counts half for either end).
std::vector<double> critical_shares(const Evaluation& evaluation);

/// Seconds per iteration that the GPUs of each task stand idle before it starts, mean over its
/// GPUs; on every GPU the busy times and waits of its tasks add up to λ. 0 for tasks without atoms.
std::vector<double> idle_before(const TaskGraph& tasks, const SteadyState& steady);

/// Tokens of one iteration when every response has `response_tokens` (DPO: both of each pair).
double tokens_per_iteration(const WorkloadConfig& config, double response_tokens);

/// The content of plan.yaml.
PlanFile make_plan_file(const Evaluation& evaluation, const WorkloadConfig& config);

}  // namespace rpeg
