#include "runtime/training_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "rpeg/base/error.h"
#include "rpeg/loss/dpo_loss.h"
#include "rpeg/model/stage.h"

namespace rpeg {
namespace {

/// One micro-batch at the end of the last stage.
struct MicroBatch {
  MiniBatch& step;
  std::span<const std::int64_t> sequences;
  const PackedSequences& packed;
  std::span<const float> hidden;
  std::span<float> d_hidden;

  std::vector<double> terms(std::vector<double> TrainingTerms::* member) const {
    return concatenate(step.batch, sequences, member);
  }
  float temperature() const { return static_cast<float>(step.job().config.sampling.temperature); }
  std::vector<float>& scratch() const { return step.context.activations.head_scratch; }
  std::span<float> gradient() const { return step.model.training->gradient; }
  /// All tensor-parallel ranks have the same numbers.
  bool counts() const { return step.groups.place.tp == 0; }
};

/// Log-probability and entropy of each response token.
struct ResponseScores {
  std::vector<double> logprob;
  std::vector<double> entropy;
};

ResponseScores score(const MicroBatch& micro) {
  TokenScores<float> scores;
  head_scores(micro.step.model.model(),
              micro.packed.batch,
              micro.hidden,
              micro.temperature(),
              micro.scratch(),
              scores);
  return {gather_response(micro.packed, scores.logprob, Anchor::kToken),
          gather_response(micro.packed, scores.entropy, Anchor::kToken)};
}

void backward_scores(const MicroBatch& micro,
                     std::span<const double> d_logprob,
                     std::span<const double> d_entropy) {
  const auto by_logprob = scatter_response(micro.packed, d_logprob, Anchor::kToken);
  std::vector<float> by_entropy;
  if (!d_entropy.empty()) {
    by_entropy = scatter_response(micro.packed, d_entropy, Anchor::kToken);
  }
  head_scores_backward<float>(micro.step.model.model(),
                              micro.packed.batch,
                              micro.hidden,
                              micro.temperature(),
                              by_logprob,
                              by_entropy,
                              micro.scratch(),
                              micro.d_hidden,
                              micro.gradient());
}

/// True while the trained weights are those that generated: no update since, none in flight.
bool is_on_policy(const MiniBatch& step) {
  const Structure& structure = step.job().plan.structure;
  return step.epoch == 0 && step.index == 0 && (structure.tau_actor == 0 || step.iteration == 0);
}

void count_mismatch(const MicroBatch& micro, std::span<const double> logprob) {
  MiniBatch& step = micro.step;
  const IterationData& data = step.context.data.at(step.iteration);
  for (std::size_t i = 0; i < micro.sequences.size(); ++i) {
    auto trained = logprob.begin() + micro.packed.starts[i];
    for (const float generated : rollout_of(data, micro.sequences[i]).logprobs) {
      const double difference = std::abs(static_cast<double>(generated) - *trained++);
      step.report[Sum::kMismatch] += difference;
      step.report[Sum::kMismatchTokens] += 1.0;
      step.report.mismatch_max = std::max(step.report.mismatch_max, difference);
    }
  }
}

void count_scores(const MicroBatch& micro, const ResponseScores& scores) {
  MiniBatch& step = micro.step;
  if (is_on_policy(step)) {
    count_mismatch(micro, scores.logprob);
  }
  if (step.epoch == 0) {
    step.report[Sum::kFirstPassTokens] += static_cast<double>(scores.entropy.size());
    for (const double nats : scores.entropy) {
      step.report[Sum::kEntropy] += nats;
    }
  }
}

void count_policy(const MiniBatch& step, const PolicyLoss& loss, double tokens) {
  step.report[Sum::kClippedTokens] += loss.clipped_tokens;
  step.report[Sum::kPolicyTokens] += tokens;
  step.report[Sum::kOldKl] += step.epoch == 0 ? loss.kl_old_sum : 0.0;
}

double policy_part(const MicroBatch& micro) {
  const TrainConfig& train = micro.step.job().config.train;
  const ResponseScores scores = score(micro);
  const auto old_logprob = micro.terms(&TrainingTerms::old_logprob);
  const auto advantages = micro.terms(&TrainingTerms::advantages);
  const auto ref_logprob = train.policy.kl_coef == 0.0 ? std::vector<double>{}
                                                       : micro.terms(&TrainingTerms::ref_logprob);
  const auto behaviour =
      train.decoupled ? micro.terms(&TrainingTerms::behaviour_logprob) : std::vector<double>{};
  const PolicyLoss loss = policy_loss({micro.packed.starts,
                                       scores.logprob,
                                       old_logprob,
                                       advantages,
                                       ref_logprob,
                                       scores.entropy,
                                       behaviour},
                                      micro.step.normaliser,
                                      train.policy);
  if (micro.counts()) {
    count_scores(micro, scores);
    count_policy(micro.step, loss, static_cast<double>(scores.logprob.size()));
  }
  backward_scores(micro, loss.d_logprob, loss.d_entropy);
  return loss.loss;
}

double value_part(const MicroBatch& micro, double coefficient) {
  const TrainConfig& train = micro.step.job().config.train;
  const Model<float> model = micro.step.model.model();
  std::vector<float> per_token;
  head_values(model, micro.hidden, per_token);
  const auto values = gather_response(micro.packed, per_token, Anchor::kPredecessor);
  ValueLoss loss = value_loss(values,
                              micro.terms(&TrainingTerms::old_values),
                              micro.terms(&TrainingTerms::returns),
                              micro.step.normaliser,
                              train.value_clip,
                              train.policy.aggregation,
                              micro.packed.starts);
  for (double& derivative : loss.d_values) {
    derivative *= coefficient;
  }
  const auto d_values = scatter_response(micro.packed, loss.d_values, Anchor::kPredecessor);
  head_values_backward<float>(model, micro.hidden, d_values, micro.d_hidden, micro.gradient());
  return loss.loss;
}

/// Log-probability of each response (B): the sum over its tokens.
std::vector<double> sequence_sums(const PackedSequences& packed, std::span<const double> tokens) {
  std::vector<double> sums(packed.first.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    for (std::int64_t r = packed.starts[i]; r < packed.starts[i + 1]; ++r) {
      sums[i] += tokens[static_cast<std::size_t>(r)];
    }
  }
  return sums;
}

/// Splits numbers of consecutive chosen and rejected responses.
struct ByPreference {
  std::vector<double> chosen;
  std::vector<double> rejected;
};
ByPreference by_preference(std::span<const double> sums) {
  ByPreference split;
  for (std::size_t i = 0; i < sums.size(); i += 2) {
    split.chosen.push_back(sums[i]);
    split.rejected.push_back(sums[i + 1]);
  }
  return split;
}

void count_pairs(const MicroBatch& micro, const DpoLoss& loss) {
  Report& report = micro.step.report;
  if (micro.step.epoch == 0) {
    report[Sum::kPairs] += static_cast<double>(loss.d_chosen.size());
    report[Sum::kPairMargin] += loss.margin_sum;
    report[Sum::kAccuratePairs] += loss.accurate_pairs;
    report[Sum::kChosenReward] += loss.chosen_reward_sum;
    report[Sum::kRejectedReward] += loss.rejected_reward_sum;
  }
}

double preference_part(const MicroBatch& micro) {
  const ResponseScores scores = score(micro);
  const ByPreference policy = by_preference(sequence_sums(micro.packed, scores.logprob));
  const ByPreference reference =
      by_preference(sequence_sums(micro.packed, micro.terms(&TrainingTerms::ref_logprob)));
  const DpoLoss loss =
      dpo_loss({policy.chosen, policy.rejected, reference.chosen, reference.rejected},
               micro.step.pairs,
               micro.step.job().config.train.dpo);
  if (micro.counts()) {
    count_scores(micro, scores);
    count_pairs(micro, loss);
  }
  std::vector<double> d_logprob;
  for (std::size_t i = 0; i < micro.sequences.size(); ++i) {
    const double derivative = i % 2 == 0 ? loss.d_chosen[i / 2] : loss.d_rejected[i / 2];
    const auto tokens =
        static_cast<std::size_t>(micro.packed.starts[i + 1] - micro.packed.starts[i]);
    d_logprob.insert(d_logprob.end(), tokens, derivative);
  }
  backward_scores(micro, d_logprob, {});
  return loss.loss;
}

}  // namespace

std::string MiniBatch::where() const {
  return fmt::format(
      "{}, iteration {}, mini-batch {}", context.vertex(vertex).name, iteration, index);
}

LossShare add_loss(MiniBatch& step,
                   std::span<const std::int64_t> sequences,
                   const PackedSequences& packed,
                   std::span<const float> hidden,
                   std::span<float> d_hidden) {
  const MicroBatch micro{step, sequences, packed, hidden, d_hidden};
  LossShare share;
  if (step.trains_policy()) {
    share.policy = step.job().inputs.policy.algorithm == Algorithm::kDpo ? preference_part(micro)
                                                                         : policy_part(micro);
  }
  if (step.trains_values()) {
    share.value = value_part(micro, step.is_joint() ? step.job().config.train.value_coef : 1.0);
  }
  return share;
}

}  // namespace rpeg
