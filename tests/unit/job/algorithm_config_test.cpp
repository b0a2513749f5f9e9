// What job.yaml says for each algorithm and each source of rewards, and that it is written back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rpeg/base/error.h"
#include "rpeg/job/job_config.h"
#include "support/test_directory.h"
#include "support/tiny_job.h"
#include "unit/job/read_config.h"

namespace rpeg {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;
using Replace = std::map<std::string, std::string>;

const std::string kReward = "reward: {verifier: copy}";
const std::string kIterations = "  iterations: 5";
const std::string kShuffle = "  shuffle: true";
const std::string kActor = "  actor: {path: models/actor}";

WorkloadConfig inputs_with_reward_model(Algorithm algorithm) {
  WorkloadConfig inputs = tiny_inputs(algorithm);
  inputs.policy.reward = RewardSource::kModel;
  inputs.models[static_cast<std::size_t>(ModelRole::kReward)] = tiny_spec();
  return inputs;
}

WorkloadConfig offline_dpo() {
  WorkloadConfig inputs = tiny_inputs(Algorithm::kDpo);
  inputs.policy.reward = RewardSource::kModel;  // the default of the workload configuration
  return inputs;
}

WorkloadConfig online_dpo() {
  WorkloadConfig inputs = tiny_inputs(Algorithm::kDpo);
  inputs.policy.dpo_mode = DpoMode::kOnline;
  return inputs;
}

class AlgorithmConfigTest : public testing::Test {
 protected:
  JobConfig load(const WorkloadConfig& inputs, const Replace& replace) {
    const fs::path folder = test::test_directory();
    fs::remove_all(folder);
    warnings_.clear();
    return read_config(write_tiny_job(folder, tiny_plan(inputs, {}), replace), inputs, warnings_);
  }

  std::string fault(const WorkloadConfig& inputs, const Replace& replace) {
    try {
      load(inputs, replace);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return error.what();
    }
    return "accepted";
  }

  static std::string written(const JobConfig& config, const WorkloadConfig& inputs) {
    YamlWriter writer;
    write_job_config(writer, config, inputs.policy);
    return writer.text();
  }

  /// Reads what was written of a configuration; it must give the same text again.
  JobConfig round_trip(const JobConfig& config, const WorkloadConfig& inputs) {
    const std::string text = written(config, inputs);
    const YamlValue document = parse_yaml(text, "written.yaml");
    Faults faults("written.yaml");
    MapReader root(document, "", faults);
    warnings_.clear();
    JobConfig back = read_job_config(root, {inputs, "/elsewhere", warnings_, 0});
    faults.throw_if_any();
    EXPECT_EQ(written(back, inputs), text);
    EXPECT_THAT(warnings_, ElementsAre());
    return back;
  }

  std::vector<std::string> warnings_;
};

TEST_F(AlgorithmConfigTest, OfflineDpoReadsPreferencePairs) {
  const WorkloadConfig inputs = offline_dpo();
  const JobConfig config =
      load(inputs,
           {{kReward, ""},
            {"sampling: {temperature: 1.0}", ""},
            {kIterations, kIterations + "\n  dpo: {beta: 0.2, label_smoothing: 0.1}"},
            {kShuffle,
             "  prompt_field: messages\n  chosen_field: good\n  rejected_field: bad\n"
             "  max_response_tokens: 9\n  over_long: truncate"}});
  EXPECT_THAT(warnings_, ElementsAre());
  const JobConfig back = round_trip(config, inputs);
  EXPECT_EQ(back.train.dpo, (DpoLossOptions{DpoLossKind::kSigmoid, 0.2, 0.1}));
  EXPECT_EQ(back.data.train.prompt_field, "messages");
  EXPECT_EQ(back.data.train.chosen_field, "good");
  EXPECT_EQ(back.data.train.rejected_field, "bad");
  EXPECT_EQ(back.data.train.max_response_tokens, 9);
  EXPECT_EQ(back.data.train.over_long, OverLong::kTruncate);
  EXPECT_EQ(back.verifier.kind, VerifierKind::kNone);
  EXPECT_EQ(back.models[static_cast<std::size_t>(ModelRole::kReference)], back.models[0]);
  EXPECT_FALSE(back.models[static_cast<std::size_t>(ModelRole::kReward)].has_value());
}

TEST_F(AlgorithmConfigTest, DpoHasItsDefaults) {
  const JobConfig config = load(offline_dpo(), {});
  EXPECT_EQ(config.train.dpo, (DpoLossOptions{DpoLossKind::kSigmoid, 0.1, 0.0}));
  EXPECT_EQ(config.data.train.chosen_field, "chosen");
  EXPECT_EQ(config.data.train.rejected_field, "rejected");
  EXPECT_THAT(warnings_,
              ElementsAre(HasSubstr("reward is not used: offline dpo"),
                          HasSubstr("sampling is not used: offline dpo")));
}

TEST_F(AlgorithmConfigTest, DpoRefusesWhatItDoesNotRead) {
  const auto dpo = [&](const std::string& options) {
    return fault(offline_dpo(), {{kIterations, kIterations + "\n  dpo: {" + options + "}"}});
  };
  EXPECT_THAT(dpo("loss: ipo, label_smoothing: 0.1"), HasSubstr("only `loss: sigmoid` smooths"));
  EXPECT_THAT(dpo("loss: hing"), HasSubstr("did you mean `hinge`"));
  EXPECT_THAT(dpo("beta: 0"), HasSubstr("train.dpo.beta"));
  EXPECT_THAT(dpo("clip: 0.2"), HasSubstr("unknown key `train.dpo.clip`"));
  EXPECT_THAT(fault(offline_dpo(), {{kShuffle, "  answer_field: answer"}}),
              AllOf(HasSubstr("data.answer_field"), HasSubstr("offline dpo")));
  EXPECT_THAT(fault(offline_dpo(), {{kShuffle, "  eval: data.jsonl"}}), HasSubstr("data.eval"));
  EXPECT_THAT(fault(offline_dpo(), {{kShuffle, "  over_long: drop"}}),
              HasSubstr("needs data.max_prompt_tokens or data.max_response_tokens"));
  for (const char* line :
       {"  chosen_field: c", "  rejected_field: r", "  max_response_tokens: 4"}) {
    EXPECT_THAT(fault(online_dpo(), {{kShuffle, line}}), HasSubstr("only offline dpo reads"));
    EXPECT_THAT(fault(tiny_inputs(Algorithm::kGrpo), {{kShuffle, line}}),
                HasSubstr("only offline dpo reads"));
  }
}

TEST_F(AlgorithmConfigTest, OnlineDpoNeedsRewards) {
  const WorkloadConfig inputs = online_dpo();
  const JobConfig config = load(
      inputs, {{kIterations, kIterations + "\n  dpo: {loss: hinge, epochs: 1, minibatches: 1}"}});
  const JobConfig back = round_trip(config, inputs);
  EXPECT_EQ(back.train.dpo.kind, DpoLossKind::kHinge);
  EXPECT_EQ(back.verifier.kind, VerifierKind::kCopy);
  EXPECT_THAT(fault(inputs, {{kReward, ""}}), AllOf(HasSubstr("reward"), HasSubstr("missing")));
  WorkloadConfig with_model = inputs_with_reward_model(Algorithm::kDpo);
  with_model.policy.dpo_mode = DpoMode::kOnline;
  EXPECT_THAT(fault(with_model, {{kReward, ""}}),
              AllOf(HasSubstr("models.reward"), HasSubstr("missing")));
}

TEST_F(AlgorithmConfigTest, ARewardModelTakesThePlaceOfAVerifier) {
  const WorkloadConfig inputs = inputs_with_reward_model(Algorithm::kGrpo);
  const std::string with_model = kActor + "\n  reward: {path: models/reward}";
  const JobConfig config = load(inputs, {{kReward, ""}, {kActor, with_model}});
  EXPECT_THAT(warnings_, ElementsAre());
  const JobConfig back = round_trip(config, inputs);
  EXPECT_EQ(back.models[static_cast<std::size_t>(ModelRole::kReward)]->path,
            test::test_directory() / "models/reward");
  EXPECT_EQ(back.verifier.kind, VerifierKind::kNone);
  EXPECT_THAT(fault(inputs, {{kReward, ""}}),
              AllOf(HasSubstr("models.reward"), HasSubstr("missing")));
  EXPECT_THAT(fault(inputs, {{kActor, with_model}}),
              HasSubstr("the plan takes rewards from a model (policy.reward: model)"));
  EXPECT_THAT(fault(tiny_inputs(Algorithm::kGrpo), {{kActor, with_model}}),
              AllOf(HasSubstr("models.reward"), HasSubstr("plan with policy.reward: model")));
  EXPECT_THAT(fault(inputs, {{kReward, ""}, {kActor, kActor + "\n  reward: {init_from: actor}"}}),
              HasSubstr("rewards come from a trained model"));
}

TEST_F(AlgorithmConfigTest, RewardCommandsStartAtTheFolderOfTheFile) {
  const WorkloadConfig inputs = tiny_inputs(Algorithm::kGrpo);
  JobConfig config =
      load(inputs, {{kReward, "reward: {command: [./score, \"--weight\", \"0.5\"], timeout: 30}"}});
  JobConfig back = round_trip(config, inputs);
  EXPECT_EQ(back.verifier.kind, VerifierKind::kCommand);
  EXPECT_THAT(back.verifier.command,
              ElementsAre((test::test_directory() / "score").string(), "--weight", "0.5"));
  EXPECT_EQ(back.verifier.timeout_s, 30.0);
  config = load(inputs, {{kReward, "reward: {command: [python3, score.py]}"}});
  EXPECT_THAT(config.verifier.command, ElementsAre("python3", "score.py"));
  EXPECT_EQ(config.verifier.timeout_s, 300.0);
}

TEST_F(AlgorithmConfigTest, RewardFaultsSayWhatWasExpected) {
  const auto reward = [&](const std::string& text) {
    return fault(tiny_inputs(Algorithm::kGrpo), {{kReward, "reward: {" + text + "}"}});
  };
  EXPECT_THAT(reward("command: []"), HasSubstr("expected a program and its arguments"));
  EXPECT_THAT(reward("command: ./score"), HasSubstr("reward.command"));
  EXPECT_THAT(reward("command: [./score], verifier: copy"), HasSubstr("stands beside `verifier`"));
  EXPECT_THAT(reward("command: [./score], pattern: x"), HasSubstr("only `verifier: regex`"));
  EXPECT_THAT(reward("command: [./score], timeout: 0"), HasSubstr("reward.timeout"));
  EXPECT_THAT(reward("verifier: copy, timeout: 3"), HasSubstr("only a `command` has a time limit"));
  EXPECT_THAT(reward("verifier: mth"), HasSubstr("did you mean `math`"));
}

TEST_F(AlgorithmConfigTest, EveryVerifierRoundTrips) {
  const WorkloadConfig inputs = tiny_inputs(Algorithm::kGrpo);
  for (std::size_t i = 0; i < kVerifierNames.size(); ++i) {
    const std::string name = kVerifierNames[i];
    const std::string pattern = name == "regex" ? ", pattern: x" : "";
    const JobConfig config =
        load(inputs, {{kReward, "reward: {verifier: " + name + pattern + "}"}});
    EXPECT_EQ(config.verifier.kind, verifier_kind(name));
    EXPECT_EQ(round_trip(config, inputs).verifier, config.verifier);
  }
}

TEST_F(AlgorithmConfigTest, TheDecoupledLossNeedsRecomputedLogProbabilities) {
  for (const Algorithm algorithm : {Algorithm::kPpo, Algorithm::kGrpo}) {
    WorkloadConfig inputs = tiny_inputs(algorithm);
    const Replace decoupled = {
        {kIterations, kIterations + "\n  " + to_string(algorithm) + ": {decoupled: true}"}};
    EXPECT_THAT(fault(inputs, decoupled),
                AllOf(HasSubstr("decoupled"),
                      HasSubstr("policy.recompute_logprobs: true"),
                      HasSubstr("plan again")));
    inputs.policy.recompute_logprobs = true;
    EXPECT_TRUE(round_trip(load(inputs, decoupled), inputs).train.decoupled);
  }
}

TEST_F(AlgorithmConfigTest, PpoOptionsRoundTrip) {
  const WorkloadConfig inputs = tiny_inputs(Algorithm::kPpo);
  const JobConfig config = load(
      inputs,
      {{kIterations,
        kIterations + "\n  ppo: {value_coef: 0.1, kl_target: 0.05, kl_horizon: 2000, clip: 0.3,"
                      " whiten: biased, dual_clip: 2}"},
       {"  backend: cpu", "  backend: cpu\n  publish: buffered"}});
  const JobConfig back = round_trip(config, inputs);
  EXPECT_EQ(back.train.value_coef, 0.1);
  EXPECT_EQ(back.train.kl_controller, (KlController{0.05, 2000.0}));
  EXPECT_EQ(back.train.policy.clip_low, 0.3);
  EXPECT_EQ(back.train.policy.dual_clip, 2.0);
  EXPECT_EQ(back.train.whiten, Whitening::kBiased);
  EXPECT_EQ(back.runtime.publish, Publish::kBuffered);
}

TEST_F(AlgorithmConfigTest, TheKlControllerIsOfPpo) {
  const auto with = [&](const std::string& text) {
    return Replace{{kIterations, kIterations + "\n  " + text}};
  };
  EXPECT_THAT(fault(tiny_inputs(Algorithm::kPpo), with("ppo: {kl_horizon: 100}")),
              HasSubstr("needs kl_target"));
  EXPECT_THAT(fault(tiny_inputs(Algorithm::kGrpo), with("grpo: {kl_target: 0.1}")),
              AllOf(HasSubstr("train.grpo.kl_target"), HasSubstr("use kl_coef")));
  WorkloadConfig inputs = tiny_inputs(Algorithm::kPpo);
  inputs.policy.kl_reference = false;
  load(inputs, with("ppo: {kl_target: 0.1}"));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("train.ppo.kl_target is not used")));
}

TEST_F(AlgorithmConfigTest, PublishIsAutoOrBuffered) {
  EXPECT_THAT(fault(tiny_inputs(Algorithm::kGrpo), {{"  backend: cpu", "  publish: in_place"}}),
              AllOf(HasSubstr("runtime.publish"), HasSubstr("buffered")));
}

}  // namespace
}  // namespace rpeg
