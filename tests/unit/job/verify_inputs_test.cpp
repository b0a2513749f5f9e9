#include "job/verify_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/hf/safetensors.h"
#include "rpeg/job/tensors.h"
#include "support/test_directory.h"
#include "support/tiny_job.h"
#include "unit/job/read_config.h"

namespace rpeg {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Key;
namespace fs = std::filesystem;

const std::string kReward = "reward: {verifier: copy}";
const std::string kActor = "  actor: {path: models/actor}";
const std::string kShuffle = "  shuffle: true";

class VerifyInputsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = test::test_directory();
    fs::remove_all(folder_);
  }

  /// Writes the files of a job and returns it as far as `verify_inputs` needs it.
  Job load(const WorkloadConfig& inputs, const std::map<std::string, std::string>& replace) {
    Job job;
    std::vector<std::string> warnings;
    const PlanFile plan = tiny_plan(inputs, {});
    job.config = read_config(write_tiny_job(folder_, plan, replace), inputs, warnings);
    job.inputs = inputs;
    return job;
  }

  static std::string fault(Job job) {
    try {
      verify_inputs(&job);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return error.what();
    }
    return "accepted";
  }

  void write_reward_model(const ModelSpec& spec, const std::string& without = "") {
    const fs::path directory = folder_ / "models/reward";
    write_file_atomic(directory / "config.json",
                      hf_config_text(spec, {.scalar_head = true, .bf16 = false}));
    std::vector<std::vector<float>> values;
    std::vector<ModelTensor> tensors;
    for (ModelTensor& tensor : model_tensors(spec, true)) {
      if (tensor.name != without) {
        values.emplace_back(static_cast<std::size_t>(tensor.count), 0.5F);
        tensors.push_back(std::move(tensor));
      }
    }
    std::vector<TensorView> views;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      views.push_back({tensors[i].name, tensors[i].shape, values[i]});
    }
    write_file_atomic(directory / "model.safetensors", safetensors_bytes(views));
  }

  fs::path folder_;
};

class RewardModelTest : public VerifyInputsTest {
 protected:
  Job job() {
    WorkloadConfig inputs = tiny_inputs(Algorithm::kGrpo);
    inputs.policy.reward = RewardSource::kModel;
    inputs.models[static_cast<std::size_t>(ModelRole::kReward)] = tiny_spec();
    return load(inputs, {{kReward, ""}, {kActor, kActor + "\n  reward: {path: models/reward}"}});
  }

  void replace_in_config(const std::string& from, const std::string& to) {
    const fs::path path = folder_ / "models/reward/config.json";
    std::string text = read_file(path);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_file_atomic(path, text.replace(at, from.size(), to));
  }
};

TEST_F(RewardModelTest, IsReadAndDigested) {
  Job with_model = job();
  write_reward_model(tiny_spec());
  verify_inputs(&with_model);
  EXPECT_THAT(with_model.input_digests,
              AllOf(Contains(Key((folder_ / "models/reward/config.json").string())),
                    Contains(Key((folder_ / "models/reward/model.safetensors").string()))));
}

TEST_F(RewardModelTest, NeedsItsDirectory) {
  EXPECT_THAT(fault(job()), AllOf(HasSubstr("models.reward"), HasSubstr("is not a directory")));
}

TEST_F(RewardModelTest, NeedsAScalarHeadOfOneLabel) {
  const Job with_model = job();
  write_reward_model(tiny_spec());
  replace_in_config("LlamaForSequenceClassification", "LlamaForCausalLM");
  EXPECT_THAT(fault(with_model),
              AllOf(HasSubstr("models.reward"),
                    HasSubstr("is of a LlamaForCausalLM"),
                    HasSubstr("num_labels 1")));
  write_reward_model(tiny_spec());
  replace_in_config("\"id2label\"", "\"num_labels\": 3, \"id2label\"");
  EXPECT_THAT(fault(with_model), HasSubstr("has 3 labels"));
  write_reward_model(tiny_spec());
  replace_in_config("\"0\": \"value\"", "\"0\": \"good\", \"1\": \"bad\"");
  EXPECT_THAT(fault(with_model), HasSubstr("has 2 labels"));
}

TEST_F(RewardModelTest, NeedsTheWeightsOfItsHead) {
  const Job with_model = job();
  write_reward_model(tiny_spec(), "score.weight");
  EXPECT_THAT(fault(with_model),
              AllOf(HasSubstr("models.reward"), HasSubstr("score.weight is missing")));
}

TEST_F(RewardModelTest, MustReadAllTokensAndPositionsOfTheActor) {
  Job with_model = job();
  ModelSpec small = tiny_spec();
  small.vocab_size = 6;
  small.max_positions = 5;
  with_model.inputs.models[static_cast<std::size_t>(ModelRole::kReward)] = small;
  write_reward_model(small);
  EXPECT_THAT(fault(with_model),
              AllOf(HasSubstr("models.reward: the vocabularies of model and tokenizer disagree"),
                    HasSubstr("models.reward has max_position_embeddings 5")));
}

class PreferencesTest : public VerifyInputsTest {
 protected:
  /// Prompts of 3 tokens; the longest response has 4, and the tiny model no stop token.
  Job job(const std::string& data_keys = "  shuffle: true") {
    WorkloadConfig inputs = tiny_inputs(Algorithm::kDpo);
    inputs.workload.samples_per_prompt = 1;
    Job result =
        load(inputs, {{kReward, ""}, {"sampling: {temperature: 1.0}", ""}, {kShuffle, data_keys}});
    write_file_atomic(folder_ / "data.jsonl",
                      R"({"prompt": "12=", "chosen": "12", "rejected": "2"}
{"prompt": "31=", "chosen": "1", "rejected": "3,12"})");
    return result;
  }
};

TEST_F(PreferencesTest, AreReadAndDigested) {
  Job pairs = job();
  verify_inputs(&pairs);
  EXPECT_THAT(pairs.input_digests, Contains(Key((folder_ / "data.jsonl").string())));
}

TEST_F(PreferencesTest, MustFitThePlan) {
  Job pairs = job();
  pairs.inputs.workload.context_length = 2;
  pairs.inputs.workload.generation_length = 3;
  EXPECT_THAT(fault(pairs),
              AllOf(HasSubstr("the longest prompt has 3 tokens"),
                    HasSubstr("the longest response has 4 tokens"),
                    HasSubstr("data.max_response_tokens: 3")));
  Job cut = job("  max_response_tokens: 3\n  max_prompt_tokens: 2\n  over_long: truncate");
  cut.inputs.workload.context_length = 2;
  cut.inputs.workload.generation_length = 3;
  EXPECT_EQ(fault(cut), "accepted");
}

TEST_F(PreferencesTest, MustFitTheModels) {
  Job pairs = job();
  ModelSpec short_model = tiny_spec();
  short_model.max_positions = 6;
  write_tiny_model(folder_ / "models/actor", short_model);
  EXPECT_THAT(fault(pairs),
              AllOf(HasSubstr("need 7 positions"),
                    HasSubstr("models.actor has max_position_embeddings 6"),
                    HasSubstr("models.reference has max_position_embeddings 6")));
}

TEST_F(PreferencesTest, FaultsOfTheFileNameTheLine) {
  const Job pairs = job();
  write_file_atomic(folder_ / "data.jsonl", R"({"prompt": "12=", "chosen": "12"})");
  EXPECT_THAT(fault(pairs), AllOf(HasSubstr("data.jsonl:1"), HasSubstr("rejected")));
}

TEST_F(VerifyInputsTest, ARewardCommandMustBeExecutable) {
  Job job = load(tiny_inputs(Algorithm::kGrpo), {{kReward, "reward: {command: [./score]}"}});
  EXPECT_THAT(fault(job), AllOf(HasSubstr("reward.command"), HasSubstr("not an executable file")));
  write_file_atomic(folder_ / "score", "#!/bin/sh\n");
  fs::permissions(folder_ / "score", fs::perms::owner_all);
  verify_inputs(&job);
  EXPECT_THAT(job.input_digests, Contains(Key((folder_ / "score").string())));
}

TEST_F(VerifyInputsTest, GroundTruthsMustSuitTheVerifier) {
  const Job job = load(tiny_inputs(Algorithm::kGrpo), {{kReward, "reward: {verifier: countdown}"}});
  EXPECT_EQ(fault(job), "accepted");  // "12" is an expression
  write_file_atomic(folder_ / "data.jsonl", R"({"prompt": "12=", "answer": "twelve"})");
  EXPECT_THAT(fault(job), AllOf(HasSubstr("data.prompts"), HasSubstr("verifier countdown")));
}

}  // namespace
}  // namespace rpeg
