#include <gtest/gtest.h>

#include "cost/vertex_rates.h"
#include "unit/cost/example.h"

namespace rpeg {
namespace {

double token_seconds(const HardwareProfile& profile, const ModelSpec& model, int tp, bool splits) {
  WorkloadConfig config = example_config();
  config.models.fill(model);
  config.optimizer.sequence_parallel = splits;
  return vertex_rates(reference(), plan_on(1, tp, {1, 1, tp}), config, profile, 4096.0)
      .non_gemm_token_s;
}

TEST(NonGemm, FollowsTheWidthsOfTheModelInTheFormOfBytes) {
  HardwareProfile profile = example_profile();  // 2 TB/s
  profile.non_gemm_bytes = true;
  profile.vector_eff = 0.5;
  // 10 h + 2 d (a + n_kv) + 3 f values of 2 bytes at 1 TB/s.
  const double wide = 2.0 * (10 * 8192 + 2 * 128 * (64 + 8) + 3 * 28672) / 1e12;
  const double small = 2.0 * (10 * 4096 + 2 * 128 * (32 + 32) + 3 * 11008) / 1e12;
  EXPECT_DOUBLE_EQ(token_seconds(profile, llama_2_70b(), 1, false), wide);
  EXPECT_DOUBLE_EQ(token_seconds(profile, llama_2_7b(), 1, false), small);
  // tp = 4 divides heads and gate; norms and residuals with sequence parallelism only.
  const double divided = 2.0 * (2 * 128 * (16 + 2) + 3 * 7168) / 1e12;
  EXPECT_DOUBLE_EQ(token_seconds(profile, llama_2_70b(), 4, false),
                   2.0 * 10 * 8192 / 1e12 + divided);
  EXPECT_DOUBLE_EQ(token_seconds(profile, llama_2_70b(), 4, true),
                   2.0 * 10 * 2048 / 1e12 + divided);
}

TEST(NonGemm, IsTheSameForEveryModelPerLayer) {
  const HardwareProfile profile = example_profile();  // 100 us at 4096 tokens
  EXPECT_DOUBLE_EQ(token_seconds(profile, llama_2_70b(), 2, false), 1e-4 / 4096 / 2);
  EXPECT_DOUBLE_EQ(token_seconds(profile, llama_2_7b(), 2, false), 1e-4 / 4096 / 2);
}

}  // namespace
}  // namespace rpeg
