#pragma once

#include "rpeg/base/rng.h"
#include "rpeg/profile/observed.h"

namespace rpeg::test {

/// Observed factors from 0.2 to 3.2, every class and tier now and then.
inline ObservedFactors random_factors(Rng& rng) {
  ObservedFactors factors;
  for (auto& tiers : factors.at) {
    for (ObservedFactor& seen : tiers) {
      if (rng.below(3) > 0) {
        seen = {.factor = 0.2 + 3.0 * rng.uniform(),
                .spread = 0.1 * rng.uniform(),
                .samples = 1 + rng.below(50)};
      }
    }
  }
  return factors;
}

}  // namespace rpeg::test
