#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "job/config_yaml.h"

namespace rpeg {
namespace {

constexpr Bounds kShare{0.0, 1.0};
constexpr Bounds kCoefficient{0.0, 1e6};
constexpr Bounds kRate{0.0, 10.0};

/// Options that PPO and GRPO have in common.
void read_policy_options(MapReader& block, TrainConfig* train, const PolicySpec& plan) {
  PolicyLossOptions& policy = train->policy;
  policy.dual_clip = block.number("dual_clip", kCoefficient, 0.0);
  if (policy.dual_clip != 0.0 && policy.dual_clip <= 1.0) {
    block.fault("dual_clip", "must exceed 1, or be 0 for none");
  }
  policy.ratio = static_cast<RatioLevel>(block.choice("ratio", kRatioNames, 0));
  policy.aggregation = static_cast<Aggregation>(block.choice("loss", kAggregationNames, 0));
  policy.entropy_coef = block.number("entropy_coef", kCoefficient, 0.0);
  train->decoupled = block.boolean("decoupled", false);
  if (train->decoupled && !plan.recompute_logprobs) {
    block.fault("decoupled",
                "needs the log-probabilities of the policy at the start of the update: set "
                "policy.recompute_logprobs: true in the workload configuration and plan again");
  }
}

/// A target steers the coefficient of the KL in the reward.
void read_kl_controller(MapReader& block, KlController* controller) {
  controller->target = block.number("kl_target", kCoefficient, 0.0);
  controller->horizon = block.number("kl_horizon", {1.0, 1e12}, controller->horizon);
  if (block.has("kl_horizon") && controller->target == 0.0) {
    block.fault("kl_horizon", "needs kl_target, the divergence to steer towards");
  }
}

void read_ppo(MapReader& block, TrainConfig* train) {
  PolicyLossOptions& policy = train->policy;
  const double clip = block.number("clip", kShare, 0.2);
  policy.clip_low = block.number("clip_low", kShare, clip);
  policy.clip_high = block.number("clip_high", kCoefficient, clip);
  train->value_clip = block.number("value_clip", kCoefficient, 0.2);
  train->gamma = block.number("gamma", kShare, 1.0);
  train->lambda = block.number("lambda", kShare, 0.95);
  train->reward_kl_coef = block.number("kl_coef", kCoefficient, 0.05);
  train->reward_kl_estimator =
      static_cast<KlEstimator>(block.choice("kl_estimator", kKlEstimatorNames, 0));
  // `true` is the usual choice, the unbiased variance.
  const std::vector<std::string> names{"none", "unbiased", "biased", "true", "false"};
  constexpr Whitening kKinds[] = {Whitening::kNone,
                                  Whitening::kUnbiased,
                                  Whitening::kBiased,
                                  Whitening::kUnbiased,
                                  Whitening::kNone};
  train->whiten = kKinds[block.choice("whiten", names, 1)];
  train->value_coef = block.number("value_coef", kCoefficient, train->value_coef);
  read_kl_controller(block, &train->kl_controller);
}

void read_grpo(MapReader& block, TrainConfig* train) {
  PolicyLossOptions& policy = train->policy;
  policy.clip_low = block.number("clip_low", kShare, 0.2);
  policy.clip_high = block.number("clip_high", kCoefficient, 0.2);
  policy.kl_coef = block.number("kl_coef", kCoefficient, 0.001);
  policy.kl_estimator =
      static_cast<KlEstimator>(block.choice("kl_estimator", kKlEstimatorNames, 2));
  train->advantage = static_cast<GroupAdvantage>(block.choice("advantage", kAdvantageNames, 0));
  train->std_eps = block.number("std_eps", kCoefficient, 1e-6);
  for (const char* key : {"kl_target", "kl_horizon"}) {
    refuse_key(block, key, "steers the KL in the reward, which grpo has in its loss: use kl_coef");
  }
}

void read_dpo(MapReader& block, DpoLossOptions* dpo) {
  dpo->beta = block.number("beta", {1e-6, 1e6}, dpo->beta);
  dpo->kind = static_cast<DpoLossKind>(block.choice("loss", kDpoLossNames, 0));
  dpo->label_smoothing = block.number("label_smoothing", {0.0, 0.5}, 0.0);
  if (dpo->label_smoothing != 0.0 && dpo->kind != DpoLossKind::kSigmoid) {
    block.fault("label_smoothing", "only `loss: sigmoid` smooths labels");
  }
}

/// Without a reference there is nothing to keep near, whatever the coefficient.
void warn_of_idle_kl(const MapReader& block, const ConfigContext& context) {
  const PolicySpec& policy = context.plan.policy;
  for (const char* key : {"kl_coef", "kl_target"}) {
    if (block.has(key) && !policy.kl_reference) {
      context.warnings.push_back(
          fmt::format("train.{}.{} is not used: the plan has policy.kl_reference: false",
                      to_string(policy.algorithm),
                      key));
    }
  }
}

/// Reads the block of the algorithm that runs; the others are only reported.
void read_algorithm(MapReader& block, TrainConfig* train, const ConfigContext& context) {
  const Algorithm algorithm = context.plan.policy.algorithm;
  for (const Algorithm other : {Algorithm::kPpo, Algorithm::kGrpo, Algorithm::kDpo}) {
    if (other != algorithm && block.has(to_string(other))) {
      context.warnings.push_back(fmt::format("train.{} is not used: the plan's algorithm is {}",
                                             to_string(other),
                                             to_string(algorithm)));
    }
    block.ignore(to_string(other));
  }
  MapReader options = block.map(to_string(algorithm), false);
  warn_of_idle_kl(options, context);
  train->epochs = options.integer("epochs", kAtLeastOne, context.plan.policy.epochs);
  train->minibatches = options.integer("minibatches", kAtLeastOne, context.plan.policy.minibatches);
  switch (algorithm) {
    case Algorithm::kPpo:
      read_policy_options(options, train, context.plan.policy);
      read_ppo(options, train);
      break;
    case Algorithm::kGrpo:
      read_policy_options(options, train, context.plan.policy);
      read_grpo(options, train);
      break;
    case Algorithm::kDpo:
      read_dpo(options, &train->dpo);
      break;
  }
  options.finish();
}

void read_optimizer(MapReader optimizer, TrainConfig* train) {
  int count = 0;
  optimizer.sequence("betas", false, [&](const YamlValue& item, const std::string& path) {
    const double beta = yaml_number(item, path, optimizer.faults(), {0.0, 0.999999999});
    (count == 0 ? train->beta1 : train->beta2) = beta;
    ++count;
  });
  if (count != 0 && count != 2) {
    optimizer.fault("betas", fmt::format("expected two numbers, found {}", count));
  }
  train->eps = optimizer.number("eps", {1e-30, 1.0}, train->eps);
  train->weight_decay = optimizer.number("weight_decay", kCoefficient, train->weight_decay);
  train->grad_clip = optimizer.number("grad_clip", kCoefficient, train->grad_clip);
  optimizer.finish();
}

}  // namespace

TrainConfig read_train_config(MapReader& root, const ConfigContext& context) {
  TrainConfig train;
  MapReader block = root.map("train", true);
  train.iterations = block.integer("iterations", kAtLeastOne);
  MapReader rate = block.map("learning_rate", false);
  train.learning_rate_actor = rate.number("actor", kRate, train.learning_rate_actor);
  train.learning_rate_critic = rate.number("critic", kRate, train.learning_rate_critic);
  rate.finish();
  MapReader schedule = block.map("schedule", false);
  train.schedule = static_cast<ScheduleKind>(schedule.choice("kind", kScheduleNames, 0));
  train.warmup = schedule.integer("warmup", kAtLeastZero, 0);
  if (train.warmup > train.iterations) {
    schedule.fault("warmup",
                   fmt::format("a warm-up of {} iterations is longer than the {} iterations of "
                               "training",
                               train.warmup,
                               train.iterations));
  }
  schedule.finish();
  read_optimizer(block.map("optimizer", false), &train);
  read_algorithm(block, &train, context);
  block.finish();
  return train;
}

double schedule_factor(const TrainConfig& train, std::int64_t iteration) {
  if (iteration < train.warmup) {
    return static_cast<double>(iteration + 1) / static_cast<double>(train.warmup);
  }
  const double span = static_cast<double>(train.iterations - train.warmup);
  const double done = static_cast<double>(iteration - train.warmup) / span;
  switch (train.schedule) {
    case ScheduleKind::kConstant:
      return 1.0;
    case ScheduleKind::kLinear:
      return 1.0 - done;
    case ScheduleKind::kCosine:
      return 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  }
  return 1.0;
}

}  // namespace rpeg
