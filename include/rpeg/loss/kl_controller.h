#pragma once

namespace rpeg {

/// Steers the coefficient of the KL penalty towards a target divergence.
struct KlController {
  double target = 0.0;       ///< nats a token; 0: the coefficient stays as it is
  double horizon = 10000.0;  ///< sequences over which a deviation takes full effect
  bool operator==(const KlController&) const = default;
};

/// The coefficient for the next batch: β·(1 + clip(kl/target − 1, ±0.2)·n/horizon) (Ziegler et al.,
/// "Fine-tuning language models from human preferences", 2019, section 2.2), where `kl` is the mean
/// KL estimate per response token of the batch and n = `sequences` its size.
double next_kl_coef(const KlController& controller, double kl_coef, double kl, double sequences);

}  // namespace rpeg
