#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rpeg {

/// AdamW with decoupled weight decay (Loshchilov & Hutter, ICLR 2019, algorithm 2).
struct AdamWOptions {
  double learning_rate = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.0;
};

/// First and second moments, (parameters) each, and the number of updates made.
struct AdamWState {
  std::vector<float> m;
  std::vector<float> v;
  std::int64_t step = 0;
};

/// Returns the L2 norm of a gradient, accumulated in double in a fixed order.
double gradient_norm(std::span<const float> gradient);

/// One update: w ← w − lr·(m̂ / (√v̂ + eps) + weight_decay·w), with the gradient first multiplied by
/// `scale` (global-norm clipping). Grows `state` on first use.
void adamw_update(const AdamWOptions& options,
                  std::span<const float> gradient,
                  double scale,
                  AdamWState& state,
                  std::span<float> weights);

}  // namespace rpeg
