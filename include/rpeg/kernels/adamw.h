#pragma once

#include <cstdint>

namespace rpeg::cpu {

/// The numbers of one AdamW step. `correction1` and `correction2` are 1 / (1 - beta^step).
struct AdamWStep {
  float learning_rate = 0.0F;
  float beta1 = 0.0F;
  float beta2 = 0.0F;
  float eps = 0.0F;
  float weight_decay = 0.0F;
  float scale = 1.0F;  ///< of the gradient
  float correction1 = 1.0F;
  float correction2 = 1.0F;
};

/// Updates the moments m and v and the weights, each (count), from a gradient (count).
void adamw_step(const AdamWStep& step,
                std::int64_t count,
                const float* gradient,
                float* m,
                float* v,
                float* weights);

/// Sum of squares of x (count), accumulated in double; independent of where x lies in memory.
double sum_of_squares(std::int64_t count, const float* x);

}  // namespace rpeg::cpu
