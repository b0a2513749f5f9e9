#include "rpeg/job/job_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "support/test_directory.h"
#include "support/tiny_job.h"

namespace rpeg {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

class JobConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = test::test_directory();
    fs::remove_all(folder_);
  }

  JobConfig load(Algorithm algorithm, const std::map<std::string, std::string>& replace = {}) {
    return load(tiny_inputs(algorithm), replace);
  }
  JobConfig load(const WorkloadConfig& inputs, const std::map<std::string, std::string>& replace) {
    warnings_.clear();
    return load_job_config(write_tiny_job(folder_, tiny_plan(inputs, {}), replace), warnings_);
  }

  /// The message of loading a job.yaml with one line replaced.
  std::string fault(const std::string& line,
                    const std::string& replacement,
                    Algorithm algorithm = Algorithm::kGrpo) {
    try {
      load(algorithm, {{line, replacement}});
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error.kind()), 2);
      return error.what();
    }
    ADD_FAILURE() << "accepted: " << replacement;
    return "";
  }

  fs::path folder_;
  std::vector<std::string> warnings_;
};

TEST_F(JobConfigTest, DefaultsAreTheDocumentedOnes) {
  const JobConfig config = load(Algorithm::kGrpo);
  EXPECT_EQ(config.plan, folder_ / "plan.yaml");
  EXPECT_EQ(config.models[0]->path, folder_ / "models/actor");
  // The reference is the actor's source.
  EXPECT_EQ(config.models[static_cast<std::size_t>(ModelRole::kReference)], config.models[0]);
  EXPECT_EQ(config.data.train.path, folder_ / "data.jsonl");
  EXPECT_EQ(config.verifier.kind, VerifierKind::kCopy);
  EXPECT_EQ(config.train.learning_rate_actor, 1e-3);
  EXPECT_EQ(config.train.policy.kl_coef, 0.001);
  EXPECT_EQ(config.train.policy.kl_estimator, KlEstimator::kK3);
  EXPECT_EQ(config.train.epochs, 1);
  EXPECT_EQ(config.train.value_coef, 0.5);
  EXPECT_EQ(config.train.kl_controller.target, 0.0);
  EXPECT_FALSE(config.train.decoupled);
  EXPECT_EQ(config.runtime.publish, Publish::kAuto);
  EXPECT_EQ(config.runtime.trace_dir, "trace");
  EXPECT_EQ(config.runtime.metrics_dir, "metrics");
  EXPECT_TRUE(config.runtime.save_dir.empty());
  EXPECT_FALSE(config.seed.has_value());
  EXPECT_THAT(warnings_, ElementsAre());
}

TEST_F(JobConfigTest, ReadsEveryKeyOfPpo) {
  const JobConfig config = load(
      Algorithm::kPpo,
      {{"  learning_rate: {actor: 1.0e-3, critic: 2.0e-3}",
        "  learning_rate: {critic: 0.5}\n"
        "  schedule: {kind: cosine, warmup: 2}\n"
        "  optimizer: {betas: [0.8, 0.9], eps: 1.0e-6, weight_decay: 0.1, grad_clip: 0}\n"
        "  ppo: {clip: 0.3, clip_high: 0.4, value_clip: 0.5, gamma: 0.9, lambda: 0.8, kl_coef: 0.1,"
        " kl_estimator: k2, whiten: biased, dual_clip: 3, ratio: sequence, entropy_coef: 0.01,"
        " loss: seq_mean_token_mean, decoupled: false, value_coef: 0.25, kl_target: 0.02,"
        " kl_horizon: 5000}"},
       {"  trace: {dir: trace}",
        "  dtype: fp32\n  transport: mpi\n  metrics: {dir: m, tensorboard: false}\n"
        "  save: {dir: /abs/save}\n  rollouts: r.jsonl\n  publish: buffered\nseed: 9\n"
        "slurm: {partition: gpu, time: \"04:00:00\", account: a01, gres_per_node: \"gpu:4\","
        " modules: [openmpi], container: null, extra: [\"--exclusive\"]}"}});
  const TrainConfig& train = config.train;
  EXPECT_EQ(train.learning_rate_critic, 0.5);
  EXPECT_EQ(train.schedule, ScheduleKind::kCosine);
  EXPECT_EQ(train.warmup, 2);
  EXPECT_EQ(train.beta1, 0.8);
  EXPECT_EQ(train.beta2, 0.9);
  EXPECT_EQ(train.eps, 1e-6);
  EXPECT_EQ(train.weight_decay, 0.1);
  EXPECT_EQ(train.grad_clip, 0.0);
  EXPECT_EQ(train.policy.clip_low, 0.3);
  EXPECT_EQ(train.policy.clip_high, 0.4);
  EXPECT_EQ(train.policy.dual_clip, 3.0);
  EXPECT_EQ(train.policy.ratio, RatioLevel::kSequence);
  EXPECT_EQ(train.policy.aggregation, Aggregation::kSeqMeanTokenMean);
  EXPECT_EQ(train.policy.entropy_coef, 0.01);
  EXPECT_EQ(train.policy.kl_coef, 0.0);
  EXPECT_EQ(train.reward_kl_coef, 0.1);
  EXPECT_EQ(train.reward_kl_estimator, KlEstimator::kK2);
  EXPECT_EQ(train.value_clip, 0.5);
  EXPECT_EQ(train.gamma, 0.9);
  EXPECT_EQ(train.lambda, 0.8);
  EXPECT_EQ(train.whiten, Whitening::kBiased);
  EXPECT_FALSE(train.decoupled);
  EXPECT_EQ(train.value_coef, 0.25);
  EXPECT_EQ(train.kl_controller, (KlController{0.02, 5000.0}));
  EXPECT_EQ(config.runtime.publish, Publish::kBuffered);
  EXPECT_EQ(config.models[static_cast<std::size_t>(ModelRole::kCritic)]->init_from,
            ModelRole::kActor);
  EXPECT_EQ(config.runtime.save_dir, "/abs/save");
  EXPECT_EQ(config.runtime.rollouts, "r.jsonl");
  EXPECT_EQ(config.seed, 9U);
  EXPECT_EQ(config.slurm.gres_per_node, "gpu:4");
  EXPECT_THAT(config.slurm.modules, ElementsAre("openmpi"));
}

TEST_F(JobConfigTest, WhitenTrueIsTheUnbiasedVariance) {
  const std::string line = "  iterations: 5";
  const auto whiten = [&](const std::string& value) {
    return load(Algorithm::kPpo, {{line, line + "\n  ppo: {whiten: " + value + "}"}}).train.whiten;
  };
  EXPECT_EQ(whiten("true"), Whitening::kUnbiased);
  EXPECT_EQ(whiten("false"), Whitening::kNone);
  EXPECT_THAT(fault(line, line + "\n  ppo: {whiten: sometimes}", Algorithm::kPpo),
              AllOf(HasSubstr("train.ppo.whiten"), HasSubstr("biased")));
}

TEST_F(JobConfigTest, RandomInitialisationTakesTheSeedOfTheJob) {
  const std::string line = "  actor: {path: models/actor}";
  auto config = load(Algorithm::kGrpo, {{line, "  actor: {init: random, config: models/actor}"}});
  EXPECT_TRUE(config.models[0]->random_init);
  EXPECT_EQ(config.models[0]->path, folder_ / "models/actor");
  EXPECT_EQ(config.models[0]->seed, 7U);  // the plan's
  config =
      load(Algorithm::kGrpo, {{line, "  actor: {init: random, config: models/actor, seed: 3}"}});
  EXPECT_EQ(config.models[0]->seed, 3U);
  EXPECT_THAT(fault(line, "  actor: {init: random, path: models/actor}"),
              AllOf(HasSubstr("models.actor"), HasSubstr("expected one of {path: DIR}")));
}

TEST_F(JobConfigTest, BlocksThatThePlanDoesNotUseAreWarnings) {
  load(Algorithm::kGrpo,
       {{"  iterations: 5", "  iterations: 5\n  ppo: {clip: 0.3}"},
        {"  actor: {path: models/actor}",
         "  actor: {path: models/actor}\n  critic: {path: models/actor}"}});
  EXPECT_THAT(warnings_,
              ElementsAre(HasSubstr("models.critic is not used"),
                          HasSubstr("train.ppo is not used: the plan's algorithm is grpo")));
}

TEST_F(JobConfigTest, KlCoefficientWithoutAReferenceIsAWarning) {
  WorkloadConfig inputs = tiny_inputs(Algorithm::kGrpo);
  inputs.policy.kl_reference = false;
  load(inputs, {{"  iterations: 5", "  iterations: 5\n  grpo: {kl_coef: 0.1}"}});
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("train.grpo.kl_coef is not used")));
  load(inputs, {});  // the default is not the user's wish
  EXPECT_THAT(warnings_, ElementsAre());
}

TEST_F(JobConfigTest, EpochsAndMinibatchesDefaultToThePlans) {
  WorkloadConfig inputs = tiny_inputs(Algorithm::kGrpo);
  inputs.policy.epochs = 2;
  inputs.policy.minibatches = 4;
  const JobConfig config = load(inputs, {});
  EXPECT_EQ(config.train.epochs, 2);
  EXPECT_EQ(config.train.minibatches, 4);
}

TEST_F(JobConfigTest, AnotherPlanCanBeNamed) {
  const fs::path job = write_tiny_job(folder_,
                                      tiny_plan(tiny_inputs(Algorithm::kGrpo), {}),
                                      {{"plan: plan.yaml", "plan: nowhere.yaml"}});
  EXPECT_THROW(load_job_config(job, warnings_), Error);
  EXPECT_EQ(load_job_config(job, warnings_, folder_ / "plan.yaml").plan, folder_ / "plan.yaml");
}

TEST_F(JobConfigTest, FaultsNameTheKeyAndThePlace) {
  EXPECT_THAT(fault("  shuffle: true", "  shufle: true"),
              AllOf(HasSubstr("job.yaml:7:3"),
                    HasSubstr("data.shufle"),
                    HasSubstr("did you mean `shuffle`")));
  EXPECT_THAT(fault("  iterations: 5", "  iterations: five"),
              AllOf(HasSubstr("train.iterations"), HasSubstr("integer"), HasSubstr("five")));
  EXPECT_THAT(fault("  iterations: 5", "  iterations: -5"), HasSubstr("train.iterations"));
  EXPECT_THAT(fault("  prompts: data.jsonl", ""),
              AllOf(HasSubstr("data.prompts"), HasSubstr("missing")));
  EXPECT_THAT(fault("reward: {verifier: copy}", "reward: {verifier: copi}"),
              HasSubstr("did you mean `copy`"));
  EXPECT_THAT(fault("reward: {verifier: copy}", "reward: {verifier: regex}"),
              HasSubstr("reward.pattern"));
  EXPECT_THAT(fault("reward: {verifier: copy}", "reward: {verifier: regex, pattern: \"(\"}"),
              AllOf(HasSubstr("job.yaml:8"), HasSubstr("reward.pattern")));
  EXPECT_THAT(fault("  iterations: 5", "  iterations: 5\n  schedule: {warmup: 6}"),
              AllOf(HasSubstr("train.schedule.warmup"), HasSubstr("6"), HasSubstr("5")));
  EXPECT_THAT(fault("  shuffle: true", "  eval_every: 5"), HasSubstr("needs data.eval"));
  EXPECT_THAT(fault("  critic: {init_from: actor}", "", Algorithm::kPpo),
              AllOf(HasSubstr("models.critic"), HasSubstr("missing")));
}

TEST_F(JobConfigTest, AllFaultsAreReportedAtOnce) {
  try {
    load(Algorithm::kGrpo,
         {{"  iterations: 5", "  iterations: 0"},
          {"  backend: cpu", "  backend: gpu"},
          {"  shuffle: true", "  shuffle: maybe"}});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("3 faults"),
                      HasSubstr("train.iterations"),
                      HasSubstr("runtime.backend"),
                      HasSubstr("data.shuffle")));
  }
}

TEST_F(JobConfigTest, FeaturesThisVersionLacksAreErrorsThatSaySo) {
  const std::map<std::string, std::string> lines{
      {"backend: cuda", "runtime.backend"},
      {"backend: rehearse", "runtime.backend"},
      {"dtype: bf16", "runtime.dtype"},
      {"transport: ucx", "runtime.transport"},
      {"checkpoint: {dir: ckpt, every: 10}", "runtime.checkpoint"},
      {"metrics: {dir: metrics, tensorboard: true}", "runtime.metrics.tensorboard"}};
  for (const auto& [line, key] : lines) {
    EXPECT_THAT(fault("  backend: cpu", "  " + line),
                AllOf(HasSubstr(key), HasSubstr("not supported by this version")));
  }
  EXPECT_THAT(fault("  shuffle: true", "  template: chat"),
              HasSubstr("not supported by this version"));
}

TEST(ScheduleFactor, WarmsUpThenDecays) {
  TrainConfig train;
  train.iterations = 12;
  train.warmup = 2;
  EXPECT_EQ(schedule_factor(train, 0), 0.5);
  EXPECT_EQ(schedule_factor(train, 1), 1.0);
  EXPECT_EQ(schedule_factor(train, 11), 1.0);
  train.schedule = ScheduleKind::kLinear;
  EXPECT_DOUBLE_EQ(schedule_factor(train, 2), 1.0);
  EXPECT_DOUBLE_EQ(schedule_factor(train, 7), 0.5);  // half of 10 iterations
  EXPECT_DOUBLE_EQ(schedule_factor(train, 11), 0.1);
  train.schedule = ScheduleKind::kCosine;
  EXPECT_DOUBLE_EQ(schedule_factor(train, 7), 0.5);
  train.warmup = 12;
  EXPECT_EQ(schedule_factor(train, 11), 1.0);
}

}  // namespace
}  // namespace rpeg
