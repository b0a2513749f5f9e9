// How training is spread over ranks changes results by rounding only.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "rpeg/base/error.h"
#include "training_fixture.h"

namespace rpeg {
namespace {

constexpr double kLossTolerance = 1e-5;
constexpr double kGradientTolerance = 1e-5;  // relative L2 of a tensor
constexpr double kUpdateTolerance = 1e-3;    // relative L2 of a tensor's w₃ − w₀

struct NamedCase {
  std::string name;
  TrainingCase options;
};

std::vector<NamedCase> algorithms() {
  return {
      {"Ppo", {.algorithm = Algorithm::kPpo, .recompute_logprobs = true}},
      {"JointPpo", {.algorithm = Algorithm::kPpo, .ac_share = true}},
      {"TiedGrpo", {.algorithm = Algorithm::kGrpo, .tied = true, .minibatches = 1, .epochs = 2}},
      {"OfflineDpo", {.algorithm = Algorithm::kDpo, .dpo_mode = DpoMode::kOffline}},
      {"OnlineDpo", {.algorithm = Algorithm::kDpo, .dpo_mode = DpoMode::kOnline}}};
}

class TrainingLayout : public testing::TestWithParam<NamedCase> {
 protected:
  TrainingOutcome alone() const { return train_on_threads(training_job(GetParam().options)); }
  TrainingOutcome under(const Parallelism& layout, std::int64_t micro_batches) const {
    TrainingCase options = GetParam().options;
    options.layout = layout;
    options.micro_batches = micro_batches;
    return train_on_threads(training_job(options));
  }
};

INSTANTIATE_TEST_SUITE_P(Every,
                         TrainingLayout,
                         testing::ValuesIn(algorithms()),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(TrainingLayout, ChangesNothing) {
  const TrainingOutcome single = alone();
  for (const auto& [layout, micro_batches] :
       std::vector<std::pair<Parallelism, std::int64_t>>{{{1, 1, 1}, 3},
                                                         {{2, 1, 1}, 1},
                                                         {{3, 1, 1}, 1},
                                                         {{1, 2, 1}, 2},
                                                         {{1, 3, 1}, 3},
                                                         {{1, 1, 2}, 1},
                                                         {{1, 1, 4}, 2},
                                                         {{2, 2, 1}, 2},
                                                         {{1, 2, 2}, 2},
                                                         {{2, 2, 2}, 1}}) {
    SCOPED_TRACE(fmt::format("dp {} pp {} tp {}", layout.dp, layout.pp, layout.tp));
    const TrainingOutcome spread = under(layout, micro_batches);
    EXPECT_LT(loss_distance(spread, single), kLossTolerance);
    EXPECT_LT(gradient_distance(spread, single), kGradientTolerance);
    EXPECT_LT(update_distance(spread, single), kUpdateTolerance);
  }
}

TEST_P(TrainingLayout, RunsTwiceToTheSameBits) {
  const TrainingOutcome first = under({2, 2, 2}, 2);
  const TrainingOutcome second = under({2, 2, 2}, 2);
  EXPECT_EQ(first.final_weights, second.final_weights);
  EXPECT_EQ(first.losses, second.losses);
}

TEST_P(TrainingLayout, WhatIsWrongIsSeen) {
  const TrainingOutcome single = alone();
  TrainingOutcome wrong = single;
  EXPECT_EQ(gradient_distance(wrong, single), 0.0);
  for (auto& [name, values] : wrong.gradients.back()) {
    for (float& value : values) {
      value = -value;
    }
  }
  EXPECT_GT(gradient_distance(wrong, single), 1.0);
  wrong = single;
  for (auto& [name, values] : wrong.gradients.front()) {
    for (float& value : values) {
      value *= 2.0F;  // as if summed over two replicas that each did the whole
    }
  }
  EXPECT_GT(gradient_distance(wrong, single), 0.5);
  TrainingCase shorter = GetParam().options;
  shorter.iterations = 2;
  wrong.final_weights = train_on_threads(training_job(shorter)).final_weights;
  EXPECT_GT(update_distance(wrong, single), 100.0 * kUpdateTolerance);
}

TEST(Zero, ShardsTheMomentsAndChangesNoBit) {
  TrainingCase options{.algorithm = Algorithm::kGrpo, .tied = true, .layout = {2, 2, 1}};
  const TrainingOutcome sharded = train_on_threads(training_job(options));
  options.zero_stage = 0;
  const TrainingOutcome whole = train_on_threads(training_job(options));
  EXPECT_EQ(sharded.final_weights, whole.final_weights);
  EXPECT_EQ(sharded.losses, whole.losses);
  EXPECT_LE(sharded.most_moments, (whole.most_moments + 1) / 2);
}

TEST(RecomputeMode, ChangesNoBit) {
  TrainingCase options{.algorithm = Algorithm::kPpo, .layout = {1, 2, 2}, .micro_batches = 2};
  const TrainingOutcome full = train_on_threads(training_job(options));
  for (const Recompute mode : {Recompute::kNone, Recompute::kSelective}) {
    options.recompute = mode;
    EXPECT_EQ(train_on_threads(training_job(options)).final_weights, full.final_weights);
  }
}

TEST(KlController, AllRanksSteerAlike) {
  TrainingCase options{.algorithm = Algorithm::kPpo, .layout = {2, 2, 1}};
  Job job = training_job(options);
  job.config.train.kl_controller = {.target = 1000.0, .horizon = 140.0};
  // The KL stays far below the target: each batch of 14 sequences takes 20 % of 14 / 140 off.
  const double factor = 1.0 - 0.2 * 14.0 / 140.0;
  const TrainingOutcome outcome = train_on_threads(job);
  ASSERT_EQ(outcome.kl_coefs.size(), 1U);  // of actor and critic, on every rank
  EXPECT_NEAR(*outcome.kl_coefs.begin(), 0.05 * factor * factor * factor, 1e-15);
}

TEST(NonFinite, EveryRankNamesVertexIterationAndMiniBatch) {
  Job job = training_job({.algorithm = Algorithm::kGrpo, .layout = {2, 2, 2}});
  job.config.train.learning_rate_actor = 1e30;
  try {
    train_on_threads(job);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
    EXPECT_THAT(error.what(), testing::HasSubstr("t_pi, iteration 0, mini-batch 1: loss is nan"));
  }
}

}  // namespace
}  // namespace rpeg
