#include "rpeg/search/explain.h"

#include <algorithm>
#include <cmath>

#include "search/decisions.h"

namespace rpeg {

std::vector<Difference> compare_plans(const Plan& plan,
                                      const Plan& other,
                                      const WorkloadConfig& config,
                                      const HardwareProfile& profile) {
  const double own_s = evaluate_plan(plan, config, profile).steady.period_s;
  std::vector<Difference> differences;
  for (search::Swap& swap : search::swap_decisions(plan, other, config)) {
    Difference difference{.what = std::move(swap.what), .valid = swap.valid};
    if (swap.valid) {
      const Evaluation swapped = evaluate_plan(swap.plan, config, profile);
      difference.effect_s = swapped.steady.period_s - own_s;
      difference.fits = swapped.fits();
    }
    differences.push_back(std::move(difference));
  }
  std::ranges::stable_sort(differences, [](const Difference& a, const Difference& b) {
    if (a.valid != b.valid) return a.valid;
    if (a.fits != b.fits) return a.fits;
    return std::abs(a.effect_s) > std::abs(b.effect_s);
  });
  return differences;
}

std::vector<std::string> plan_differences(const Plan& plan,
                                          const Plan& other,
                                          const WorkloadConfig& config) {
  std::vector<std::string> texts;
  for (search::Swap& swap : search::swap_decisions(plan, other, config)) {
    texts.push_back(std::move(swap.what));
  }
  return texts;
}

}  // namespace rpeg
