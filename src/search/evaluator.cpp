#include "search/evaluator.h"

#include "rpeg/search/evaluation.h"

namespace rpeg::search {

struct Evaluator::Impl {
  const WorkloadConfig& config;
  const HardwareProfile& profile;
};

Evaluator::Evaluator(const WorkloadConfig& config, const HardwareProfile& profile)
    : impl_(new Impl{config, profile}) {}
Evaluator::~Evaluator() = default;

Score Evaluator::score(const Plan& plan) {
  const Evaluation evaluation = evaluate_plan(plan, impl_->config, impl_->profile);
  Score score{plan_objective(evaluation, impl_->config),
              evaluation.priced.overflow,
              evaluation.steady.period_s,
              {}};
  const std::vector<double> shares = critical_shares(evaluation);
  for (std::size_t v = 0; v < shares.size(); ++v) {
    score.critical[v] = static_cast<float>(shares[v]);
  }
  return score;
}

}  // namespace rpeg::search
