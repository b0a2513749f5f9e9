#include "runtime/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/message.h"

namespace rpeg {
namespace {

/// numerator / denominator, NaN when there is nothing to average.
double mean(double numerator, double denominator) {
  return denominator > 0.0 ? numerator / denominator : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

Bytes encode_report(const Report& report) {
  Bytes message;
  append_value(message, report.sums);
  append_value(message, report.mismatch_max);
  append_value(message, report.stop);
  append_value(message, report.iteration_s);
  append_value(message, static_cast<std::uint64_t>(report.task_s.size()));
  append_bytes(message, std::span<const double>(report.task_s));
  append_value(message, static_cast<std::uint64_t>(report.rollouts.size()));
  append_bytes(message, std::span<const char>(report.rollouts));
  return message;
}

Report decode_report(const Bytes& message) {
  MessageReader reader(message);
  Report report;
  report.sums = reader.take<decltype(report.sums)>();
  report.mismatch_max = reader.take<double>();
  report.stop = reader.take<bool>();
  report.iteration_s = reader.take<double>();
  report.task_s = reader.take_vector<double>(reader.take<std::uint64_t>());
  report.rollouts.resize(reader.take<std::uint64_t>());
  reader.take_into(std::span<char>(report.rollouts));
  return report;
}

void merge_report(Report& total, const Report& part) {
  for (std::size_t i = 0; i < total.sums.size(); ++i) {
    total.sums[i] += part.sums[i];
  }
  total.mismatch_max = std::max(total.mismatch_max, part.mismatch_max);
  total.stop = total.stop || part.stop;
  total.iteration_s = std::max(total.iteration_s, part.iteration_s);
  total.task_s.resize(std::max(total.task_s.size(), part.task_s.size()));
  for (std::size_t i = 0; i < part.task_s.size(); ++i) {
    total.task_s[i] = std::max(total.task_s[i], part.task_s[i]);
  }
  total.rollouts += part.rollouts;
}

IterationMetrics metrics_of(const Job& job, std::int64_t iteration, const Report& total) {
  const TrainConfig& train = job.config.train;
  const bool has_critic = job.inputs.policy.algorithm == Algorithm::kPpo;
  const bool is_dpo = job.inputs.policy.algorithm == Algorithm::kDpo;
  const auto updates = static_cast<double>(train.epochs * train.minibatches);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double sequences = total[Sum::kSequences];
  IterationMetrics metrics;
  metrics.iteration = iteration;
  metrics.reward_mean = mean(total[Sum::kReward], sequences);
  const double second_moment = mean(total[Sum::kRewardSquared], sequences);
  const double variance = second_moment - metrics.reward_mean * metrics.reward_mean;
  metrics.reward_std = std::sqrt(variance < 0.0 ? 0.0 : variance);  // NaN without rewards
  metrics.response_tokens_mean = mean(total[Sum::kResponseTokens], sequences);
  metrics.stopped_share = mean(total[Sum::kStopped], sequences);
  metrics.policy_loss = total[Sum::kPolicyLoss] / updates;
  metrics.value_loss = has_critic ? total[Sum::kValueLoss] / updates : nan;
  metrics.kl_reference = mean(total[Sum::kReferenceKl], total[Sum::kReferenceTokens]);
  metrics.kl_old = mean(total[Sum::kOldKl], total[Sum::kFirstPassTokens]);
  metrics.clip_fraction = mean(total[Sum::kClippedTokens], total[Sum::kPolicyTokens]);
  metrics.entropy = mean(total[Sum::kEntropy], total[Sum::kFirstPassTokens]);
  metrics.gradient_norm_actor = total[Sum::kGradientNormActor] / updates;
  const bool has_norm = find_vertex(job.graph, "t_V") != VertexId{-1};
  metrics.gradient_norm_critic = has_norm ? total[Sum::kGradientNormCritic] / updates : nan;
  metrics.learning_rate = train.learning_rate_actor * schedule_factor(train, iteration);
  metrics.mismatch_mean = mean(total[Sum::kMismatch], total[Sum::kMismatchTokens]);
  metrics.mismatch_max = total[Sum::kMismatchTokens] > 0.0 ? total.mismatch_max : nan;
  metrics.dpo_pairs = is_dpo ? total[Sum::kPairs] : nan;
  metrics.dpo_margin = mean(total[Sum::kPairMargin], total[Sum::kPairs]);
  metrics.dpo_accuracy = mean(total[Sum::kAccuratePairs], total[Sum::kPairs]);
  metrics.dpo_chosen_reward = mean(total[Sum::kChosenReward], total[Sum::kPairs]);
  metrics.dpo_rejected_reward = mean(total[Sum::kRejectedReward], total[Sum::kPairs]);
  metrics.iteration_s = total.iteration_s;
  metrics.tokens_per_s =
      mean(total[Sum::kPromptTokens] + total[Sum::kResponseTokens], total.iteration_s);
  metrics.eval_reward = mean(total[Sum::kEvalReward], total[Sum::kEvalSequences]);
  return metrics;
}

std::string metrics_line(const IterationMetrics& metrics) {
  // nlohmann-json writes NaN as null.
  nlohmann::ordered_json line;
  line["iteration"] = metrics.iteration;
  line["reward_mean"] = metrics.reward_mean;
  line["reward_std"] = metrics.reward_std;
  line["response_tokens_mean"] = metrics.response_tokens_mean;
  line["stopped_share"] = metrics.stopped_share;
  line["policy_loss"] = metrics.policy_loss;
  line["value_loss"] = metrics.value_loss;
  line["kl_reference"] = metrics.kl_reference;
  line["kl_old"] = metrics.kl_old;
  line["clip_fraction"] = metrics.clip_fraction;
  line["entropy"] = metrics.entropy;
  line["gradient_norm_actor"] = metrics.gradient_norm_actor;
  line["gradient_norm_critic"] = metrics.gradient_norm_critic;
  line["learning_rate"] = metrics.learning_rate;
  line["mismatch_mean"] = metrics.mismatch_mean;
  line["mismatch_max"] = metrics.mismatch_max;
  line["dpo_pairs"] = metrics.dpo_pairs;
  line["dpo_margin"] = metrics.dpo_margin;
  line["dpo_accuracy"] = metrics.dpo_accuracy;
  line["dpo_chosen_reward"] = metrics.dpo_chosen_reward;
  line["dpo_rejected_reward"] = metrics.dpo_rejected_reward;
  line["iteration_s"] = metrics.iteration_s;
  line["tokens_per_s"] = metrics.tokens_per_s;
  line["eval_reward"] = metrics.eval_reward;
  return line.dump();
}

}  // namespace rpeg
