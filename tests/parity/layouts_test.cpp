// The same job under many splits and placements on 1 to 8 ranks: the same samples, and on the same
// samples the same losses, gradients and weights.

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parity/recording.h"
#include "support/copy_job.h"
#include "support/layout_job.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;
using testing::Not;

struct Case {
  std::string name;
  std::string elsewhere;  ///< of every vertex that is not named
  VertexLayouts layouts{};
};

std::string all(const std::string& gpus, const std::string& split) {
  return "r0 n[0-0] g[" + gpus + "] " + split;
}

/// Every split of every vertex alike, then mixed, disjoint and uneven ones.
const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"dp2", all("0-1", "dp2")},
      {"tp2", all("0-1", "dp1 tp2")},
      {"pp2", all("0-1", "dp1 pp2 m2")},
      {"dp4", all("0-3", "dp4")},
      {"tp4", all("0-3", "dp1 tp4")},
      {"pp4", all("0-3", "dp1 pp4 m4")},
      {"dp2_tp2", all("0-3", "dp2 tp2")},
      {"dp2_pp2", all("0-3", "dp2 pp2 m2")},
      {"pp2_tp2", all("0-3", "dp1 pp2 tp2 m3")},
      {"dp2_pp2_tp2", all("0-7", "dp2 pp2 tp2 m2")},
      {"pp2_tp4", all("0-7", "dp1 pp2 tp4 m2")},
      {"pp4_tp2", all("0-7", "dp1 pp4 tp2 m4")},
      {"dp4_tp2", all("0-7", "dp4 tp2")},
      {"dp4_pp2", all("0-7", "dp4 pp2 m2")},
      {"dp2_tp4", all("0-7", "dp2 tp4")},
      {"dp2_pp4", all("0-7", "dp2 pp4 m4")},
      {"dp3_uneven_batch", all("0-2", "dp3 m2")},
      {"pp3_uneven_layers", all("0-2", "dp1 pp3 m5")},
      {"generate_tp2_train_dp2",
       all("0-1", "dp2"),
       {{"g_pi", all("0-1", "dp1 tp2")}, {"i_V", all("0-1", "dp1 pp2")}}},
      {"generate_dp2_train_pp2",
       all("0-1", "dp2"),
       {{"t_pi", all("0-1", "dp1 pp2 m4")}, {"t_V", all("0-1", "dp1 tp2")}}},
      {"generate_pp2_train_tp2",
       all("0-1", "dp1 tp2"),
       {{"g_pi", all("0-1", "dp1 pp2 m2")}, {"i_ref", all("1-1", "dp1")}}},
      {"disjoint_dp2_tp2",
       all("4-4", "dp1"),
       {{"g_pi", all("0-1", "dp2")},
        {"t_pi", all("2-3", "dp1 tp2")},
        {"t_V", all("5-6", "dp1 pp2 m2")}}},
      {"disjoint_tp2_pp2_dp2tp2",
       all("2-3", "dp1 pp2 m2"),
       {{"g_pi", all("0-1", "dp1 tp2")},
        {"t_pi", all("4-7", "dp2 tp2")},
        {"t_V", all("4-7", "dp4")}}},
      {"uneven_dp5_pp3",
       all("0-4", "dp5"),
       {{"t_pi", all("5-7", "dp1 pp3 m4")}, {"t_V", all("5-7", "dp3")}}},
      {"overlapping_blocks",
       all("1-4", "dp1 tp4"),
       {{"g_pi", all("0-3", "dp4")}, {"t_pi", all("2-5", "dp2 tp2 m2")}}},
      {"train_dp3_pp2_generate_tp4",
       all("0-5", "dp6"),
       {{"g_pi", all("4-7", "dp1 tp4")}, {"t_pi", all("0-5", "dp3 pp2 m2")}}},
      {"critic_apart",
       all("0-3", "dp4"),
       {{"t_pi", all("0-1", "dp1 tp2")},
        {"t_V", all("2-3", "dp1 pp2 m2")},
        {"i_V", all("2-3", "dp1 tp2")}}},
      {"generate_pp2_tp2_train_dp4",
       all("0-3", "dp4"),
       {{"g_pi", all("0-3", "dp1 pp2 tp2 m2")}, {"i_ref", all("0-7", "dp8")}}},
  };
  return kCases;
}

LayoutJob base_job(Algorithm algorithm) {
  LayoutJob job;
  job.algorithm = algorithm;
  // Rewards of PPO by rule, of the others by a model, which then is split like the rest.
  job.reward = algorithm == Algorithm::kPpo ? RewardSource::kVerifier : RewardSource::kModel;
  return job;
}

/// The run on one rank that all others are held against; made once per algorithm.
struct Reference {
  fs::path directory;
  Recording recording;
};
const Reference& reference(Algorithm algorithm) {
  static std::map<Algorithm, Reference> known;
  const auto [found, is_new] = known.try_emplace(algorithm);
  if (is_new) {
    found->second.directory = fresh_directory(std::string("reference_") + to_string(algorithm));
    found->second.recording =
        record(compile_layout_job(base_job(algorithm), found->second.directory));
  }
  return found->second;
}

std::string lines(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, "\n"));
}

/// Iteration 0 samples from equal weights. A later token may differ where two candidates were as
/// good as equal; the model's logits are far enough apart that none is here.
void expect_same_samples(const RolloutTable& run, const RolloutTable& reference) {
  ASSERT_EQ(run.size(), reference.size());
  for (const auto& [key, record] : reference) {
    if (record.iteration == 0) {
      EXPECT_EQ(run.at(key).rollout.tokens, record.rollout.tokens)
          << "prompt " << record.prompt << ", sample " << record.sample;
    }
  }
}

using Parameter = std::tuple<Algorithm, std::size_t>;
class Layouts : public testing::TestWithParam<Parameter> {
 protected:
  LayoutJob job() const {
    LayoutJob job = base_job(std::get<0>(GetParam()));
    const Case& chosen = cases()[std::get<1>(GetParam())];
    job.elsewhere = chosen.elsewhere;
    job.layouts = chosen.layouts;
    return job;
  }
  std::string name() const {
    return std::string(to_string(std::get<0>(GetParam()))) + "_" +
           cases()[std::get<1>(GetParam())].name;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Parity,
    Layouts,
    testing::Combine(testing::Values(Algorithm::kPpo, Algorithm::kGrpo, Algorithm::kDpo),
                     testing::Range<std::size_t>(0, cases().size())),
    [](const auto& tested) {
      return std::string(to_string(std::get<0>(tested.param))) + "_" +
             cases()[std::get<1>(tested.param)].name;
    });

TEST_P(Layouts, SampleAndLearnTheSame) {
  const Reference& one = reference(std::get<0>(GetParam()));
  const Recording sampled = record(compile_layout_job(job(), fresh_directory(name())));
  expect_same_samples(sampled.rollouts, one.recording.rollouts);
  const Recording replayed = record(compile_layout_job(job(), fresh_directory(name() + "_replay")),
                                    one.directory / "rollouts.jsonl");
  const auto found = differences(replayed, one.recording);
  EXPECT_THAT(found, IsEmpty()) << lines(found);
}

/// What the comparison must notice.
class Faults : public testing::Test {
 protected:
  Recording recording = reference(Algorithm::kPpo).recording;
  const Recording& truth = reference(Algorithm::kPpo).recording;
};

TEST_F(Faults, TheReferenceEqualsItself) { EXPECT_THAT(differences(recording, truth), IsEmpty()); }

TEST_F(Faults, ANegatedGradientIsNoticed) {
  for (float& g : recording.gradients.at("t_pi")[1].at("model.layers.2.self_attn.k_proj.weight")) {
    g = -g;
  }
  EXPECT_THAT(differences(recording, truth), Not(IsEmpty()));
}

TEST_F(Faults, AGradientScaledByDpIsNoticed) {
  for (auto& [name, tensor] : recording.gradients.at("t_V")[0]) {
    for (float& g : tensor) {
      g *= 2.0F;
    }
  }
  EXPECT_THAT(differences(recording, truth), Not(IsEmpty()));
}

TEST_F(Faults, AMissingUpdateIsNoticed) {
  for (float& w : recording.updates.at("actor").at("model.norm.weight")) {
    w = 0.0F;
  }
  EXPECT_THAT(differences(recording, truth), Not(IsEmpty()));
}

}  // namespace
}  // namespace rpeg
