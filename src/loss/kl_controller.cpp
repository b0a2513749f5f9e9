#include "rpeg/loss/kl_controller.h"

#include <algorithm>

#include "rpeg/base/error.h"

namespace rpeg {

double next_kl_coef(const KlController& controller, double kl_coef, double kl, double sequences) {
  check(controller.target >= 0.0 && controller.horizon > 0.0 && sequences >= 0.0,
        "next_kl_coef: target and sequences are not negative, horizon is positive");
  if (controller.target == 0.0) {
    return kl_coef;
  }
  const double error = std::clamp(kl / controller.target - 1.0, -0.2, 0.2);
  // More than 5 horizons in one batch would turn the penalty into a reward.
  return std::max(0.0, kl_coef * (1.0 + error * sequences / controller.horizon));
}

}  // namespace rpeg
