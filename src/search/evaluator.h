#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "rpeg/plan/plan.h"
#include "rpeg/profile/hardware_profile.h"
#include "rpeg/spec/workload_config.h"

namespace rpeg::search {

inline constexpr std::size_t kMaxVertices = 8;  ///< vertices of an uncut graph, and one to spare

/// What the search keeps of an evaluation.
struct Score {
  double objective = 0.0;  ///< what is minimised, before the memory penalty: plan_objective
  double overflow = 0.0;   ///< PricedPlan::overflow
  double period_s = 0.0;
  std::array<float, kMaxVertices> critical{};  ///< share of each vertex in the critical cycle
  bool operator==(const Score&) const = default;
};

/// The score of a plan by evaluate_plan, nothing remembered: what Evaluator::score must equal.
Score full_score(const Plan& plan, const WorkloadConfig& config, const HardwareProfile& profile);

/// Throws kInternal when `score` is not exactly full_score of the plan.
void check_score(const Score& score,
                 const Plan& plan,
                 const WorkloadConfig& config,
                 const HardwareProfile& profile);

/// Scores structurally valid plans one after another, as evaluate_plan does, and remembers the
/// times and bytes of vertices and transfers, at most 25 MB. One for each thread, whose chains
/// share it. After the pieces of a plan are known, a score costs no allocation and does not grow
/// with the cluster. `config` and `profile` outlive it.
class Evaluator {
 public:
  Evaluator(const WorkloadConfig& config, const HardwareProfile& profile);
  ~Evaluator();
  Score score(const Plan& plan);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rpeg::search
