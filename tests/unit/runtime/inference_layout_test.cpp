// How inference is spread over ranks changes results by rounding only.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "inference_fixture.h"
#include "recorded_batch.h"

namespace rpeg {
namespace {

constexpr double kTolerance = 2e-5;

void expect_alike(const InferenceOutcome& a, const InferenceOutcome& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [vertex, sequences] : b) {
    ASSERT_EQ(a.at(vertex).size(), sequences.size()) << vertex;
    for (const auto& [s, numbers] : sequences) {
      const std::vector<float>& others = a.at(vertex).at(s);
      ASSERT_EQ(others.size(), numbers.size()) << vertex << ", sequence " << s;
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (std::isnan(numbers[i]) && std::isnan(others[i])) {
          continue;  // a sample that is not trained
        }
        EXPECT_NEAR(others[i], numbers[i], kTolerance) << vertex << ", sequence " << s;
      }
    }
  }
}

TEST(InferenceLayout, ChangesNothing) {
  TrainingCase options{
      .algorithm = Algorithm::kPpo, .recompute_logprobs = true, .reward_model = true};
  const Job job = training_job(options);
  const InferenceOutcome alone = infer_on_threads(job);
  ASSERT_EQ(alone.size(), 4U);  // i_R, i_V, i_ref, i_pi
  for (const auto& [vertex, sequences] : alone) {
    EXPECT_EQ(sequences.size(), 14U);
    for (const std::int64_t s : {0, 5, 13}) {
      EXPECT_THAT(sequences.at(s),
                  testing::Pointwise(testing::FloatNear(1e-5F), infer_alone(job, vertex, s)))
          << vertex << ", sequence " << s;
    }
  }
  for (const Parallelism& layout :
       std::vector<Parallelism>{{3, 1, 1}, {1, 3, 1}, {1, 1, 4}, {2, 2, 1}, {1, 2, 2}, {2, 2, 2}}) {
    SCOPED_TRACE(fmt::format("dp {} pp {} tp {}", layout.dp, layout.pp, layout.tp));
    options.layout = layout;
    options.micro_batches = 3;
    expect_alike(infer_on_threads(training_job(options)), alone);
  }
}

TEST(InferenceLayout, OnlineDpoScoresTheTrainedPairsAlone) {
  TrainingCase options{.algorithm = Algorithm::kDpo, .dpo_mode = DpoMode::kOnline};
  const InferenceOutcome alone = infer_on_threads(training_job(options));
  std::size_t scored = 0;
  for (const auto& [s, numbers] : alone.at("i_ref")) {
    scored += std::isnan(numbers[0]) ? 0U : 1U;
  }
  EXPECT_EQ(scored % 2, 0U);
  EXPECT_LT(scored, 14U);  // a prompt with equal scores is among the recorded ones
  EXPECT_GT(scored, 0U);
  options.layout = {2, 2, 1};
  expect_alike(infer_on_threads(training_job(options)), alone);
}

}  // namespace
}  // namespace rpeg
