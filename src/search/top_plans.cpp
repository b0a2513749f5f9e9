#include "search/top_plans.h"

#include <algorithm>
#include <utility>

#include "search/plan_key.h"

namespace rpeg::search {

bool TopPlans::insert(RankedPlan plan) {
  const auto same = std::ranges::find(plans_, plan.form, &RankedPlan::form);
  if (same != plans_.end()) {
    if (same->objective <= plan.objective) return false;
    plans_.erase(same);
  }
  const auto at = std::ranges::upper_bound(plans_, plan.objective, {}, &RankedPlan::objective);
  const bool is_best = at == plans_.begin();
  plans_.insert(at, std::move(plan));
  if (plans_.size() > size_) plans_.pop_back();
  return is_best;
}

bool TopPlans::offer(const Plan& plan, double objective, double period_s) {
  if (is_beyond(objective)) return false;
  return insert({plan, objective, period_s, canonical_form(plan)});
}

void TopPlans::merge(const TopPlans& other) {
  for (const RankedPlan& plan : other.plans_) {
    if (!is_beyond(plan.objective)) insert(plan);
  }
}

}  // namespace rpeg::search
