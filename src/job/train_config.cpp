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
  train->epochs = block.integer("epochs", kAtLeastOne, plan.epochs);
  train->minibatches = block.integer("minibatches", kAtLeastOne, plan.minibatches);
  policy.dual_clip = block.number("dual_clip", kCoefficient, 0.0);
  if (policy.dual_clip != 0.0 && policy.dual_clip <= 1.0) {
    block.fault("dual_clip", "must exceed 1, or be 0 for none");
  }
  policy.ratio = static_cast<RatioLevel>(block.choice("ratio", kRatioNames, 0));
  policy.aggregation = static_cast<Aggregation>(block.choice("loss", kAggregationNames, 0));
  policy.entropy_coef = block.number("entropy_coef", kCoefficient, 0.0);
  if (block.boolean("decoupled", false)) {
    block.fault("decoupled",
                "not supported by this version, which runs without staleness: leave it out");
  }
  reject_key(block, "kl_target", "use a fixed kl_coef");
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
  reject_key(block, "value_coef", "it belongs to a trunk shared by actor and critic");
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
}

/// Without a reference there is nothing to keep near, whatever the coefficient.
void warn_of_idle_kl(const MapReader& block, const ConfigContext& context) {
  const PolicySpec& policy = context.plan.policy;
  if (block.has("kl_coef") && !policy.kl_reference) {
    context.warnings.push_back(
        fmt::format("train.{}.kl_coef is not used: the plan has policy.kl_reference: false",
                    to_string(policy.algorithm)));
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
  switch (algorithm) {
    case Algorithm::kPpo:
      read_policy_options(options, train, context.plan.policy);
      read_ppo(options, train);
      options.finish();
      break;
    case Algorithm::kGrpo:
      read_policy_options(options, train, context.plan.policy);
      read_grpo(options, train);
      options.finish();
      break;
    case Algorithm::kDpo:  // refused as a whole by the compiler
      break;
  }
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
