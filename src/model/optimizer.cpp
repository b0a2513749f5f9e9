#include "rpeg/model/optimizer.h"

#include <cmath>

#include "rpeg/base/error.h"
#include "rpeg/kernels/adamw.h"

namespace rpeg {

double gradient_norm(std::span<const float> gradient) {
  return std::sqrt(
      cpu::sum_of_squares(static_cast<std::int64_t>(gradient.size()), gradient.data()));
}

void adamw_update(const AdamWOptions& options,
                  std::span<const float> gradient,
                  double scale,
                  AdamWState& state,
                  std::span<float> weights) {
  check(gradient.size() == weights.size(), "adamw_update needs one gradient per weight");
  if (state.step == 0) {
    state.m.resize(weights.size(), 0.0F);
    state.v.resize(weights.size(), 0.0F);
  }
  check(state.m.size() == weights.size() && state.v.size() == weights.size(),
        "the optimizer state belongs to another model");
  ++state.step;
  const auto steps = static_cast<double>(state.step);
  cpu::AdamWStep step;
  step.learning_rate = static_cast<float>(options.learning_rate);
  step.beta1 = static_cast<float>(options.beta1);
  step.beta2 = static_cast<float>(options.beta2);
  step.eps = static_cast<float>(options.eps);
  step.weight_decay = static_cast<float>(options.weight_decay);
  step.scale = static_cast<float>(scale);
  step.correction1 = static_cast<float>(1.0 / (1.0 - std::pow(options.beta1, steps)));
  step.correction2 = static_cast<float>(1.0 / (1.0 - std::pow(options.beta2, steps)));
  cpu::adamw_step(step,
                  static_cast<std::int64_t>(weights.size()),
                  gradient.data(),
                  state.m.data(),
                  state.v.data(),
                  weights.data());
}

}  // namespace rpeg
