// Three successive updates of PPO, GRPO and DPO at learning rate 1e-3 against PyTorch in float64
// (scripts/make_update_golden.py), on recorded tokens: the gradient of every update before
// clipping, and by how much all three moved the weights, tensor by tensor.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "rpeg/base/file.h"
#include "rpeg/loss/advantage.h"
#include "rpeg/loss/dpo_loss.h"
#include "rpeg/loss/policy_loss.h"
#include "rpeg/model/optimizer.h"
#include "rpeg/model/parameters.h"
#include "rpeg/model/transformer.h"
#include "unit/job/read_config.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Numbers = std::vector<double>;
using Ids = std::vector<std::int32_t>;

const fs::path kData = fs::path(RPEG_SOURCE_DIR) / "tests/golden/data/update";
constexpr std::int64_t kUpdates = 3;
constexpr double kLossTolerance = 1e-5;
constexpr double kGradientTolerance = 1e-5;  // relative L2
constexpr double kChangeTolerance = 1e-3;    // relative L2

JobConfig config_of(Algorithm algorithm) {
  WorkloadConfig inputs;
  inputs.models[static_cast<std::size_t>(ModelRole::kActor)] =
      load_hf_config(kData / "three/actor");
  inputs.policy.algorithm = algorithm;
  inputs.policy.reward = RewardSource::kVerifier;
  std::vector<std::string> warnings;
  JobConfig config =
      read_config(kData / "three" / to_string(algorithm) / "job.yaml", inputs, warnings);
  EXPECT_TRUE(warnings.empty());
  return config;
}

/// A prompt and what followed it.
struct Sequence {
  Ids prompt;
  Ids response;
};

/// Sequences end to end, and where their responses stand.
struct Packed {
  PackedBatch batch;
  std::vector<std::int64_t> starts{0};  ///< of the responses among all response tokens
  std::vector<std::size_t> positions;   ///< (response tokens) in the batch
};

Packed pack(const std::vector<Sequence>& sequences) {
  Packed packed;
  for (const Sequence& sequence : sequences) {
    const auto first = packed.batch.tokens.size() + sequence.prompt.size();
    Ids tokens = sequence.prompt;
    tokens.insert(tokens.end(), sequence.response.begin(), sequence.response.end());
    append_sequence(packed.batch, tokens);
    for (std::size_t t = 0; t < sequence.response.size(); ++t) {
      packed.positions.push_back(first + t);
    }
    packed.starts.push_back(static_cast<std::int64_t>(packed.positions.size()));
  }
  return packed;
}

/// Of per-token numbers of the batch those of the response tokens, or of the token `before` each.
Numbers gather(const Packed& packed, std::span<const float> numbers, std::size_t before = 0) {
  Numbers result;
  for (const std::size_t position : packed.positions) {
    result.push_back(numbers[position - before]);
  }
  return result;
}

std::vector<float> scatter(const Packed& packed, const Numbers& numbers, std::size_t before = 0) {
  std::vector<float> result(packed.batch.tokens.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    result[packed.positions[i] - before] = static_cast<float>(numbers[i]);
  }
  return result;
}

double relative_distance(std::span<const float> actual, std::span<const float> expected) {
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = static_cast<double>(actual[i]) - static_cast<double>(expected[i]);
    difference += error * error;
    norm += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return std::sqrt(difference / norm);
}

/// A model in training on one rank, held against its recorded updates.
class Trained {
 public:
  Trained(ModelRole role, const fs::path& recorded, double learning_rate, const TrainConfig& train)
      : role_(role),
        recorded_(recorded),
        spec_(load_hf_config(kData / "three" / to_string(role))),
        layout_(build_parameter_layout(
            spec_, role == ModelRole::kCritic ? Head::kScalar : Head::kLanguageModel)),
        initial_(load(kData / "three" / to_string(role))),
        weights_(initial_),
        gradient_(initial_.size()),
        grad_clip_(train.grad_clip),
        options_{learning_rate, train.beta1, train.beta2, train.eps, train.weight_decay} {}

  Model<float> model() const { return {&spec_, &layout_, weights_}; }

  TokenScores<float> score(const Packed& packed, double temperature) {
    TokenScores<float> scores;
    forward_scores(model(), packed.batch, static_cast<float>(temperature), activations_, scores);
    return scores;
  }
  std::vector<float> values(const Packed& packed) {
    std::vector<float> result;
    forward_values(model(), packed.batch, activations_, result);
    return result;
  }

  /// The rest of an update after `score` or `values`: gradient, comparison, optimizer.
  void update_scores(const Packed& packed,
                     double temperature,
                     const Numbers& d_logprob,
                     const Numbers& d_entropy = {}) {
    const std::vector<float> entropy =
        d_entropy.empty() ? std::vector<float>{} : scatter(packed, d_entropy);
    backward_scores<float>(model(),
                           packed.batch,
                           static_cast<float>(temperature),
                           activations_,
                           scatter(packed, d_logprob),
                           entropy,
                           gradient_);
    finish_update();
  }
  void update_values(const Packed& packed, const Numbers& d_values) {
    backward_values<float>(
        model(), packed.batch, activations_, scatter(packed, d_values, 1), gradient_);
    finish_update();
  }

  void expect_recorded_change() const {
    std::vector<float> change(weights_.size());
    for (std::size_t i = 0; i < change.size(); ++i) {
      change[i] = weights_[i] - initial_[i];
    }
    expect_near_by_tensor(change, recorded_ / "change", kChangeTolerance);
  }

 private:
  std::vector<float> load(const fs::path& directory) const {
    std::vector<float> numbers(static_cast<std::size_t>(layout_.total));
    load_parameters(directory, layout_, numbers);
    return numbers;
  }

  void expect_near_by_tensor(std::span<const float> actual,
                             const fs::path& directory,
                             double tolerance) const {
    const std::vector<float> expected = load(directory / to_string(role_));
    for (const ParameterTensor& tensor : layout_.tensors) {
      const auto part = [&](std::span<const float> all) {
        return all.subspan(static_cast<std::size_t>(tensor.offset),
                           static_cast<std::size_t>(tensor.count));
      };
      EXPECT_LT(relative_distance(part(actual), part(expected)), tolerance)
          << directory << " " << to_string(role_) << " " << tensor.name;
    }
  }

  void finish_update() {
    expect_near_by_tensor(
        gradient_, recorded_ / ("gradient_" + std::to_string(updates_++)), kGradientTolerance);
    const double norm = gradient_norm(gradient_);
    const double scale = norm > grad_clip_ ? grad_clip_ / norm : 1.0;
    adamw_update(options_, gradient_, scale, optimizer_, weights_);
    std::fill(gradient_.begin(), gradient_.end(), 0.0F);
  }

  ModelRole role_;
  fs::path recorded_;
  ModelSpec spec_;
  ParameterLayout layout_;
  std::vector<float> initial_;
  std::vector<float> weights_;
  std::vector<float> gradient_;
  double grad_clip_;
  AdamWOptions options_;
  AdamWState optimizer_;
  Activations<float> activations_;
  std::int64_t updates_ = 0;
};

/// The recorded responses of one iteration.
struct Rollouts {
  Packed packed;
  Numbers logprobs;  ///< of the response tokens
  Numbers rewards;   ///< one a sequence
  LossNormaliser normaliser;
};

std::vector<json> json_lines(const fs::path& path) {
  std::istringstream text(read_file(path));
  std::vector<json> rows;
  for (std::string line; std::getline(text, line);) {
    rows.push_back(json::parse(line));
  }
  return rows;
}

/// Tokens of a prompt of the copy task: digits and "=".
Ids prompt_tokens(const std::string& text) {
  Ids tokens;
  for (const char c : text) {
    tokens.push_back(c == '=' ? 10 : c - '0');
  }
  return tokens;
}

Rollouts rollouts_of(const fs::path& directory, std::int64_t iteration) {
  const std::vector<json> prompts = json_lines(kData / "prompts.jsonl");
  Rollouts rollouts;
  std::vector<Sequence> sequences;
  for (const json& row : json_lines(directory / "rollouts.jsonl")) {
    if (row.at("iteration") != iteration) {
      continue;
    }
    const auto prompt = row.at("dataset_index").get<std::size_t>();
    sequences.push_back(
        {prompt_tokens(prompts.at(prompt).at("prompt")), row.at("tokens").get<Ids>()});
    rollouts.rewards.push_back(row.at("reward"));
    for (const double logprob : row.at("logprobs")) {
      rollouts.logprobs.push_back(logprob);
    }
  }
  rollouts.packed = pack(sequences);
  rollouts.normaliser = {
      static_cast<double>(rollouts.logprobs.size()), static_cast<double>(sequences.size()), 0.0};
  return rollouts;
}

/// Updates the policy with given advantages (one a response token).
void expect_policy_update(Trained& actor,
                          const Rollouts& rollouts,
                          const JobConfig& config,
                          const Numbers& advantages,
                          const Numbers& ref_logprob,
                          double expected_loss) {
  const double temperature = config.sampling.temperature;
  const TokenScores<float> scores = actor.score(rollouts.packed, temperature);
  const Numbers logprob = gather(rollouts.packed, scores.logprob);
  const Numbers entropy = gather(rollouts.packed, scores.entropy);
  const PolicyLoss loss = policy_loss(
      {rollouts.packed.starts, logprob, rollouts.logprobs, advantages, ref_logprob, entropy},
      rollouts.normaliser,
      config.train.policy);
  EXPECT_NEAR(loss.loss, expected_loss, kLossTolerance);
  actor.update_scores(rollouts.packed, temperature, loss.d_logprob, loss.d_entropy);
}

TEST(ThreeUpdates, GrpoEqualsPyTorch) {
  const JobConfig config = config_of(Algorithm::kGrpo);
  const fs::path recorded = kData / "three/grpo";
  const json metrics = json::parse(read_file(recorded / "metrics.json"));
  Trained actor(ModelRole::kActor, recorded, config.train.learning_rate_actor, config.train);
  Trained reference(ModelRole::kReference, recorded, 0.0, config.train);
  for (std::int64_t k = 0; k < kUpdates; ++k) {
    const Rollouts rollouts = rollouts_of(recorded, k);
    const Numbers of_sequences =
        group_advantages(rollouts.rewards, 3, config.train.advantage, config.train.std_eps);
    Numbers advantages;
    for (std::size_t i = 0; i < of_sequences.size(); ++i) {
      const std::int64_t length = rollouts.packed.starts[i + 1] - rollouts.packed.starts[i];
      advantages.insert(advantages.end(), static_cast<std::size_t>(length), of_sequences[i]);
    }
    const Numbers ref_logprob = gather(
        rollouts.packed, reference.score(rollouts.packed, config.sampling.temperature).logprob);
    expect_policy_update(actor,
                         rollouts,
                         config,
                         advantages,
                         ref_logprob,
                         metrics.at(static_cast<std::size_t>(k)).at("policy_loss"));
  }
  actor.expect_recorded_change();
}

TEST(ThreeUpdates, PpoEqualsPyTorch) {
  const JobConfig config = config_of(Algorithm::kPpo);
  const TrainConfig& train = config.train;
  const fs::path recorded = kData / "three/ppo";
  const json metrics = json::parse(read_file(recorded / "metrics.json"));
  Trained actor(ModelRole::kActor, recorded, train.learning_rate_actor, train);
  Trained critic(ModelRole::kCritic, recorded, train.learning_rate_critic, train);
  Trained reference(ModelRole::kReference, recorded, 0.0, train);
  for (std::int64_t k = 0; k < kUpdates; ++k) {
    const json& expected = metrics.at(static_cast<std::size_t>(k));
    const Rollouts rollouts = rollouts_of(recorded, k);
    const Packed& packed = rollouts.packed;
    const Numbers ref_logprob =
        gather(packed, reference.score(packed, config.sampling.temperature).logprob);
    const Numbers values = gather(packed, critic.values(packed), 1);
    const Gae gae = generalised_advantages(packed.starts,
                                           token_rewards(packed.starts,
                                                         rollouts.rewards,
                                                         rollouts.logprobs,
                                                         ref_logprob,
                                                         train.reward_kl_estimator,
                                                         train.reward_kl_coef),
                                           values,
                                           train.gamma,
                                           train.lambda);
    const Numbers advantages = whiten(gae.advantages, moments(gae.advantages), train.whiten);
    expect_policy_update(actor, rollouts, config, advantages, {}, expected.at("policy_loss"));
    const ValueLoss loss = value_loss(values,
                                      values,
                                      gae.returns,
                                      rollouts.normaliser,
                                      train.value_clip,
                                      train.policy.aggregation,
                                      packed.starts);
    EXPECT_NEAR(loss.loss, expected.at("value_loss").get<double>(), kLossTolerance);
    critic.update_values(packed, loss.d_values);
  }
  actor.expect_recorded_change();
  critic.expect_recorded_change();
}

/// Sums over each response of its tokens' log-probabilities.
Numbers response_sums(const Packed& packed, std::span<const float> logprob) {
  const Numbers tokens = gather(packed, logprob);
  Numbers sums;
  for (std::size_t i = 0; i + 1 < packed.starts.size(); ++i) {
    sums.push_back(std::accumulate(
        tokens.begin() + packed.starts[i], tokens.begin() + packed.starts[i + 1], 0.0));
  }
  return sums;
}

TEST(ThreeUpdates, DpoEqualsPyTorch) {
  const JobConfig config = config_of(Algorithm::kDpo);
  const fs::path recorded = kData / "three/dpo";
  const json updates = json::parse(read_file(recorded / "updates.json"));
  Trained actor(ModelRole::kActor, recorded, config.train.learning_rate_actor, config.train);
  Trained reference(ModelRole::kReference, recorded, 0.0, config.train);
  ASSERT_EQ(updates.size(), static_cast<std::size_t>(kUpdates));
  for (const json& expected : updates) {
    // All chosen responses, then all rejected ones.
    std::vector<Sequence> sequences;
    for (const char* side : {"chosen", "rejected"}) {
      for (const json& pair : expected.at("pairs")) {
        sequences.push_back({pair.at("prompt").get<Ids>(), pair.at(side).get<Ids>()});
      }
    }
    const std::size_t pairs = sequences.size() / 2;
    const Packed packed = pack(sequences);
    const Numbers ref = response_sums(packed, reference.score(packed, 1.0).logprob);
    const Numbers policy = response_sums(packed, actor.score(packed, 1.0).logprob);
    const auto half = [&](const Numbers& all, std::size_t which) {
      return std::span(all).subspan(which * pairs, pairs);
    };
    const DpoLoss loss = dpo_loss({half(policy, 0), half(policy, 1), half(ref, 0), half(ref, 1)},
                                  static_cast<double>(pairs),
                                  config.train.dpo);
    EXPECT_NEAR(loss.loss, expected.at("loss").get<double>(), kLossTolerance);
    EXPECT_NEAR(loss.margin_sum, expected.at("margin_sum").get<double>(), kLossTolerance);
    EXPECT_EQ(loss.accurate_pairs, expected.at("accurate_pairs").get<double>());
    EXPECT_NEAR(
        loss.chosen_reward_sum, expected.at("chosen_reward_sum").get<double>(), kLossTolerance);
    Numbers d_logprob;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const double derivative = i < pairs ? loss.d_chosen[i] : loss.d_rejected[i - pairs];
      d_logprob.insert(d_logprob.end(), sequences[i].response.size(), derivative);
    }
    actor.update_scores(packed, 1.0, d_logprob);
  }
  actor.expect_recorded_change();
}

}  // namespace
}  // namespace rpeg
