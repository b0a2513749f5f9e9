#include "rpeg/loss/kl_controller.h"

#include <gtest/gtest.h>

namespace rpeg {
namespace {

TEST(KlController, FollowsTheDeviationFromItsTarget) {
  const KlController controller{6.0, 1000.0};
  EXPECT_DOUBLE_EQ(next_kl_coef(controller, 0.2, 6.0, 256.0), 0.2);
  EXPECT_DOUBLE_EQ(next_kl_coef(controller, 0.2, 6.6, 100.0), 0.2 * (1.0 + 0.1 * 0.1));
  EXPECT_DOUBLE_EQ(next_kl_coef(controller, 0.2, 5.4, 100.0), 0.2 * (1.0 - 0.1 * 0.1));
}

TEST(KlController, LimitsTheDeviationToAFifth) {
  const KlController controller{6.0, 1000.0};
  EXPECT_DOUBLE_EQ(next_kl_coef(controller, 0.2, 600.0, 500.0), 0.2 * 1.1);
  EXPECT_DOUBLE_EQ(next_kl_coef(controller, 0.2, -1.0, 500.0), 0.2 * 0.9);
}

TEST(KlController, NeverTurnsThePenaltyIntoAReward) {
  EXPECT_EQ(next_kl_coef({6.0, 10.0}, 0.2, 0.0, 500.0), 0.0);
}

TEST(KlController, WithoutATargetTheCoefficientStays) {
  EXPECT_EQ(next_kl_coef({}, 0.2, 123.0, 256.0), 0.2);
}

}  // namespace
}  // namespace rpeg
