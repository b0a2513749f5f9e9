#include "runtime/training_batch.h"

#include <algorithm>

#include "rpeg/base/error.h"
#include "rpeg/loss/advantage.h"

namespace rpeg {
namespace {

std::vector<double> widen(std::span<const float> numbers) {
  return {numbers.begin(), numbers.end()};
}

/// One number per sequence of the global batch on every rank of the group: each contributes those
/// of its own sequences, and 0 + x = x exactly.
template <typename NumberOf>
std::vector<double> of_all_sequences(const RankContext& context,
                                     Comm& group,
                                     std::span<const std::int64_t> own,
                                     const NumberOf& number_of) {
  std::vector<double> numbers(static_cast<std::size_t>(context.job.inputs.workload.sequences()));
  for (const std::int64_t s : own) {
    numbers[static_cast<std::size_t>(s)] = number_of(s);
  }
  group.all_reduce_sum(std::span<double>(numbers));
  return numbers;
}

TrainingTerms given_terms(const RankContext& context,
                          const IterationData& data,
                          ModelRole role,
                          std::int64_t s) {
  const Graph& graph = context.job.graph;
  const auto has = [&](const char* vertex) { return find_vertex(graph, vertex) != VertexId{-1}; };
  TrainingTerms terms;
  terms.old_logprob =
      widen(role == ModelRole::kActor && has("i_pi") ? numbers_of(data, s, Payload::kActorLogprobs)
                                                     : rollout_of(data, s).logprobs);
  if (has("i_ref")) {
    terms.ref_logprob = widen(numbers_of(data, s, Payload::kRefLogprobs));
  }
  if (has("i_V")) {
    terms.old_values = widen(numbers_of(data, s, Payload::kValues));
  }
  return terms;
}

/// GRPO: one advantage a sequence from the scores of its group, whose sequences may be spread over
/// ranks.
void add_group_advantages(const RankContext& context,
                          const IterationData& data,
                          Comm& group,
                          TrainingBatch& batch) {
  const TrainConfig& train = context.job.config.train;
  const std::vector<double> scores = of_all_sequences(
      context, group, batch.own, [&](std::int64_t s) { return score_of(data, s); });
  const std::vector<double> advantages =
      group_advantages(scores, context.samples(), train.advantage, train.std_eps);
  for (auto& [s, terms] : batch.terms) {
    terms.advantages.assign(terms.old_logprob.size(), advantages[static_cast<std::size_t>(s)]);
  }
}

/// Cuts an array over the own sequences, end to end, into the sequences.
void distribute(std::span<const double> numbers,
                TrainingBatch& batch,
                std::vector<double> TrainingTerms::* member) {
  std::size_t begin = 0;
  for (const std::int64_t s : batch.own) {
    TrainingTerms& terms = batch.terms.at(s);
    const auto part = numbers.subspan(begin, terms.old_logprob.size());
    (terms.*member).assign(part.begin(), part.end());
    begin += part.size();
  }
}

/// PPO: rewards with the KL penalty, generalised advantages and, for the policy, whitening over the
/// global batch.
void add_generalised_advantages(const RankContext& context,
                                const IterationData& data,
                                Comm& group,
                                TrainingBatch& batch) {
  const TrainConfig& train = context.job.config.train;
  std::vector<std::int64_t> starts{0};
  std::vector<double> scores;
  std::vector<double> behaviour;  // also where i_pi gives the ratio another denominator
  for (const std::int64_t s : batch.own) {
    const std::vector<float>& logprobs = rollout_of(data, s).logprobs;
    starts.push_back(starts.back() + static_cast<std::int64_t>(logprobs.size()));
    scores.push_back(score_of(data, s));
    behaviour.insert(behaviour.end(), logprobs.begin(), logprobs.end());
  }
  const auto rewards = token_rewards(starts,
                                     scores,
                                     behaviour,
                                     concatenate(batch, batch.own, &TrainingTerms::ref_logprob),
                                     train.reward_kl_estimator,
                                     train.reward_kl_coef);
  const Gae gae = generalised_advantages(starts,
                                         rewards,
                                         concatenate(batch, batch.own, &TrainingTerms::old_values),
                                         train.gamma,
                                         train.lambda);
  Moments global = moments(gae.advantages);
  std::array<double, 3> sums = {global.count, global.sum, global.sum_of_squares};
  group.all_reduce_sum(std::span<double>(sums));
  global = {sums[0], sums[1], sums[2]};
  distribute(whiten(gae.advantages, global, train.whiten), batch, &TrainingTerms::advantages);
  distribute(gae.returns, batch, &TrainingTerms::returns);
}

void count_reference_kl(const RankContext& context, const TrainingBatch& batch, Report& report) {
  const TrainConfig& train = context.job.config.train;
  const KlEstimator estimator = context.job.inputs.policy.algorithm == Algorithm::kPpo
                                    ? train.reward_kl_estimator
                                    : train.policy.kl_estimator;
  for (const auto& [s, terms] : batch.terms) {
    for (std::size_t t = 0; t < terms.ref_logprob.size(); ++t) {
      report[Sum::kReferenceKl] +=
          kl_estimate(estimator, terms.old_logprob[t], terms.ref_logprob[t]);
      report[Sum::kReferenceTokens] += 1.0;
    }
  }
}

}  // namespace

TrainingBatch build_training_batch(RankContext& context,
                                   const Instruction& instruction,
                                   std::int64_t iteration) {
  const IterationData& data = context.data.at(iteration);
  Comm& group = *context.groups_of(instruction.vertex).all;
  TrainingBatch batch;
  batch.own = sequence_list(instruction.sequences);
  batch.lengths = of_all_sequences(context, group, batch.own, [&](std::int64_t s) {
    return static_cast<double>(rollout_of(data, s).tokens.size());
  });
  const ModelRole role = context.vertex(instruction.vertex).model;
  for (const std::int64_t s : batch.own) {
    batch.terms.emplace(s, given_terms(context, data, role, s));
  }
  if (context.job.inputs.policy.algorithm == Algorithm::kPpo) {
    add_generalised_advantages(context, data, group, batch);
  } else {
    add_group_advantages(context, data, group, batch);
  }
  if (role == ModelRole::kActor) {
    count_reference_kl(context, batch, context.reports[iteration]);
  }
  return batch;
}

LossNormaliser normaliser_of(const RankContext& context,
                             const TrainingBatch& batch,
                             std::int64_t minibatch) {
  const SequenceRange range = minibatch_sequences(static_cast<std::int64_t>(batch.lengths.size()),
                                                  context.job.config.train.minibatches,
                                                  minibatch);
  LossNormaliser normaliser;
  normaliser.sequences = static_cast<double>(range.last - range.first);
  for (std::int64_t s = range.first; s < range.last; ++s) {
    normaliser.tokens += batch.lengths[static_cast<std::size_t>(s)];
  }
  normaliser.max_length = static_cast<double>(context.job.inputs.workload.generation_length);
  return normaliser;
}

std::vector<double> concatenate(const TrainingBatch& batch,
                                std::span<const std::int64_t> sequences,
                                std::vector<double> TrainingTerms::* member) {
  std::vector<double> all;
  for (const std::int64_t s : sequences) {
    const std::vector<double>& part = batch.terms.at(s).*member;
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace rpeg
