#pragma once

#include <cstdint>
#include <vector>

#include "rpeg/plan/plan.h"

namespace rpeg::search {

/// A plan that fits, and what is minimised.
struct RankedPlan {
  Plan plan;
  double objective = 0.0;
  double period_s = 0.0;
  std::vector<std::int64_t> form;  ///< canonical_form(plan)
};

/// The best plans seen, best first, no two of equal canonical form. Among equal objectives the one
/// offered first stays first.
class TopPlans {
 public:
  explicit TopPlans(std::size_t size) : size_(size) {}
  /// Returns whether the plan became the best.
  bool offer(const Plan& plan, double objective, double period_s);
  void merge(const TopPlans& other);
  /// Whether a plan of this objective would change nothing. Cheap: ask before `offer`.
  bool is_beyond(double objective) const {
    return plans_.size() == size_ && objective >= plans_.back().objective;
  }
  const std::vector<RankedPlan>& plans() const { return plans_; }

 private:
  bool insert(RankedPlan plan);

  std::size_t size_;
  std::vector<RankedPlan> plans_;
};

}  // namespace rpeg::search
