#include "rpeg/kernels/adamw.h"

#include <algorithm>

#include "kernels/cpu/eigen.h"

namespace rpeg::cpu {
namespace {

// Work goes through aligned registers of fixed size, so that no result depends on an address.
constexpr std::int64_t kChunk = 64;
using Chunk = Eigen::Array<float, kChunk, 1>;

Chunk load(const float* from, std::int64_t count) {
  Chunk chunk = Chunk::Zero();
  std::copy_n(from, count, chunk.data());
  return chunk;
}

}  // namespace

void adamw_step(const AdamWStep& step,
                std::int64_t count,
                const float* gradient,
                float* m,
                float* v,
                float* weights) {
  for (std::int64_t first = 0; first < count; first += kChunk) {
    const std::int64_t size = std::min(kChunk, count - first);
    const Chunk g = load(gradient + first, size) * step.scale;
    const Chunk w = load(weights + first, size);
    const Chunk first_moment = step.beta1 * load(m + first, size) + (1.0F - step.beta1) * g;
    const Chunk second_moment =
        step.beta2 * load(v + first, size) + (1.0F - step.beta2) * g.square();
    const Chunk direction =
        first_moment * step.correction1 / ((second_moment * step.correction2).sqrt() + step.eps);
    const Chunk updated = w - step.learning_rate * (direction + step.weight_decay * w);
    std::copy_n(first_moment.data(), size, m + first);
    std::copy_n(second_moment.data(), size, v + first);
    std::copy_n(updated.data(), size, weights + first);
  }
}

double sum_of_squares(std::int64_t count, const float* x) {
  double sum = 0.0;
  for (std::int64_t first = 0; first < count; first += kChunk) {
    const Chunk chunk = load(x + first, std::min(kChunk, count - first));
    sum += chunk.cast<double>().square().sum();
  }
  return sum;
}

}  // namespace rpeg::cpu
