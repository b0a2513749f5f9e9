#include "runtime/training_batch.h"

#include <algorithm>

#include "rpeg/base/error.h"
#include "rpeg/loss/advantage.h"
#include "runtime/message.h"
#include "runtime/share.h"

namespace rpeg {
namespace {

using Member = std::vector<double> TrainingTerms::*;
constexpr std::array<Member, 6> kMembers = {&TrainingTerms::behaviour_logprob,
                                            &TrainingTerms::old_logprob,
                                            &TrainingTerms::ref_logprob,
                                            &TrainingTerms::advantages,
                                            &TrainingTerms::old_values,
                                            &TrainingTerms::returns};

/// The leader of a replica, with what it has for the vertex.
struct Leader {
  const RankContext& context;
  const Vertex& vertex;
  const IterationData& data;
  Comm& leaders;

  bool trains_policy() const { return vertex.model == ModelRole::kActor; }
  const TrainConfig& train() const { return context.job.config.train; }
};

bool has_vertex(const Job& job, Op op) {
  return std::any_of(job.graph.vertices.begin(),
                     job.graph.vertices.end(),
                     [&](const Vertex& vertex) { return vertex.op == op; });
}

std::vector<double> widen(std::span<const float> numbers) {
  return {numbers.begin(), numbers.end()};
}

/// One number per sequence of the global batch on every leader: each contributes those of its own
/// sequences, and 0 + x = x exactly.
template <typename NumberOf>
std::vector<double> of_all_sequences(const Leader& leader,
                                     std::span<const std::int64_t> own,
                                     const NumberOf& number_of) {
  std::vector<double> numbers(static_cast<std::size_t>(job_sequences(leader.context.job.inputs)));
  for (const std::int64_t s : own) {
    numbers[static_cast<std::size_t>(s)] = number_of(s);
  }
  leader.leaders.all_reduce_sum(std::span<double>(numbers));
  return numbers;
}

TrainingTerms given_terms(const Leader& leader, std::int64_t s) {
  const Job& job = leader.context.job;
  TrainingTerms terms;
  terms.behaviour_logprob = widen(rollout_of(leader.data, s).logprobs);
  terms.old_logprob = leader.trains_policy() && has_vertex(job, Op::kInferActor)
                          ? widen(numbers_of(leader.data, s, Payload::kActorLogprobs))
                          : terms.behaviour_logprob;
  if (has_vertex(job, Op::kInferReference)) {
    terms.ref_logprob = widen(numbers_of(leader.data, s, Payload::kRefLogprobs));
  }
  if (has_vertex(job, Op::kInferValue)) {
    terms.old_values = widen(numbers_of(leader.data, s, Payload::kValues));
  }
  return terms;
}

/// GRPO: one advantage a sequence from the scores of its group, whose sequences may be spread over
/// replicas.
void add_group_advantages(const Leader& leader, TrainingBatch& batch) {
  const std::vector<double> scores =
      of_all_sequences(leader, batch.own, [&](std::int64_t s) { return score_of(leader.data, s); });
  const std::vector<double> advantages = group_advantages(
      scores, leader.context.samples(), leader.train().advantage, leader.train().std_eps);
  for (auto& [s, terms] : batch.terms) {
    terms.advantages.assign(terms.old_logprob.size(), advantages[static_cast<std::size_t>(s)]);
  }
}

/// Cuts an array over the own sequences, end to end, into the sequences.
void distribute(std::span<const double> numbers, TrainingBatch& batch, Member member) {
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
void add_generalised_advantages(const Leader& leader, double kl_coef, TrainingBatch& batch) {
  const TrainConfig& train = leader.train();
  std::vector<std::int64_t> starts{0};
  std::vector<double> scores;
  for (const std::int64_t s : batch.own) {
    starts.push_back(starts.back() +
                     static_cast<std::int64_t>(batch.terms.at(s).behaviour_logprob.size()));
    scores.push_back(score_of(leader.data, s));
  }
  const auto rewards =
      token_rewards(starts,
                    scores,
                    concatenate(batch, batch.own, &TrainingTerms::behaviour_logprob),
                    concatenate(batch, batch.own, &TrainingTerms::ref_logprob),
                    train.reward_kl_estimator,
                    kl_coef);
  const Gae gae = generalised_advantages(starts,
                                         rewards,
                                         concatenate(batch, batch.own, &TrainingTerms::old_values),
                                         train.gamma,
                                         train.lambda);
  Moments global = moments(gae.advantages);
  std::array<double, 3> sums = {global.count, global.sum, global.sum_of_squares};
  leader.leaders.all_reduce_sum(std::span<double>(sums));
  global = {sums[0], sums[1], sums[2]};
  distribute(whiten(gae.advantages, global, train.whiten), batch, &TrainingTerms::advantages);
  distribute(gae.returns, batch, &TrainingTerms::returns);
}

/// Sum of the KL estimates of the own sequences, `member` against the reference.
double reference_kl(const Leader& leader, const TrainingBatch& batch, Member member) {
  const KlEstimator estimator = leader.context.job.inputs.policy.algorithm == Algorithm::kPpo
                                    ? leader.train().reward_kl_estimator
                                    : leader.train().policy.kl_estimator;
  double sum = 0.0;
  for (const auto& [s, terms] : batch.terms) {
    for (std::size_t t = 0; t < terms.ref_logprob.size(); ++t) {
      sum += kl_estimate(estimator, (terms.*member)[t], terms.ref_logprob[t]);
    }
  }
  return sum;
}

void measure_reference_kl(const Leader& leader, TrainingBatch& batch, Report& report) {
  double tokens = 0.0;
  for (const auto& [s, terms] : batch.terms) {
    tokens += static_cast<double>(terms.ref_logprob.size());
  }
  if (leader.trains_policy()) {
    report[Sum::kReferenceKl] += reference_kl(leader, batch, &TrainingTerms::old_logprob);
    report[Sum::kReferenceTokens] += tokens;
  }
  std::array<double, 2> sums = {reference_kl(leader, batch, &TrainingTerms::behaviour_logprob),
                                tokens};
  leader.leaders.all_reduce_sum(std::span<double>(sums));
  batch.behaviour_kl = sums[1] > 0.0 ? sums[0] / sums[1] : 0.0;
}

/// DPO: the pairs and, of their sequences, the reference's log-probabilities.
void add_pairs(const Leader& leader, TrainingBatch& batch) {
  const WorkloadConfig& inputs = leader.context.job.inputs;
  batch.pairs = preference_pairs(inputs, leader.data, batch.own);
  batch.kept.resize(static_cast<std::size_t>(inputs.workload.batch_size));
  for (const SequencePair& pair : batch.pairs) {
    batch.kept[static_cast<std::size_t>(pair.unit)] = 1.0;
    for (const std::int64_t s : {pair.chosen, pair.rejected}) {
      batch.terms[s].ref_logprob = widen(numbers_of(leader.data, s, Payload::kRefLogprobs));
    }
  }
  leader.leaders.all_reduce_sum(std::span<double>(batch.kept));
}

void compute_batch(const Leader& leader,
                   double reward_kl_coef,
                   Report& report,
                   TrainingBatch& batch) {
  batch.lengths = of_all_sequences(leader, batch.own, [&](std::int64_t s) {
    return static_cast<double>(rollout_of(leader.data, s).tokens.size());
  });
  const Algorithm algorithm = leader.context.job.inputs.policy.algorithm;
  if (algorithm == Algorithm::kDpo) {
    add_pairs(leader, batch);
    return;
  }
  for (const std::int64_t s : batch.own) {
    batch.terms.emplace(s, given_terms(leader, s));
  }
  if (algorithm == Algorithm::kPpo) {
    add_generalised_advantages(leader, reward_kl_coef, batch);
  } else {
    add_group_advantages(leader, batch);
  }
  measure_reference_kl(leader, batch, report);
}

template <typename T>
void append_counted(Bytes& out, std::span<const T> values) {
  append_value(out, static_cast<std::uint64_t>(values.size()));
  append_bytes(out, values);
}

template <typename T>
std::vector<T> take_counted(MessageReader& reader) {
  return reader.take_vector<T>(reader.take<std::uint64_t>());
}

Bytes encode_batch(const TrainingBatch& batch) {
  Bytes message;
  append_value(message, batch.behaviour_kl);
  append_counted(message, std::span<const double>(batch.lengths));
  append_counted(message, std::span<const double>(batch.kept));
  append_counted(message, std::span<const SequencePair>(batch.pairs));
  append_value(message, static_cast<std::uint64_t>(batch.terms.size()));
  for (const auto& [s, terms] : batch.terms) {
    append_value(message, s);
    for (const Member member : kMembers) {
      append_counted(message, std::span<const double>(terms.*member));
    }
  }
  return message;
}

void decode_batch(const Bytes& message, TrainingBatch& batch) {
  MessageReader reader(message);
  batch.behaviour_kl = reader.take<double>();
  batch.lengths = take_counted<double>(reader);
  batch.kept = take_counted<double>(reader);
  batch.pairs = take_counted<SequencePair>(reader);
  const auto sequences = reader.take<std::uint64_t>();
  for (std::uint64_t i = 0; i < sequences; ++i) {
    TrainingTerms& terms = batch.terms[reader.take<std::int64_t>()];
    for (const Member member : kMembers) {
      terms.*member = take_counted<double>(reader);
    }
  }
  check(reader.remaining() == 0, "training batch longer than its content");
}

/// The sequences whose tokens the passes read.
std::vector<std::int64_t> read_sequences(const TrainingBatch& batch) {
  std::vector<std::int64_t> sequences;
  for (const auto& [s, terms] : batch.terms) {
    sequences.push_back(s);
  }
  return sequences;
}

}  // namespace

TrainingBatch build_training_batch(RankContext& context,
                                   const Instruction& instruction,
                                   std::int64_t iteration,
                                   double reward_kl_coef) {
  const BlockGroups& groups = context.groups_of(instruction.vertex);
  TrainingBatch batch;
  batch.own = sequence_list(instruction.sequences);
  if (groups.is_leader()) {
    const Leader leader{
        context, context.vertex(instruction.vertex), context.data.at(iteration), *groups.leaders};
    compute_batch(leader, reward_kl_coef, context.reports[iteration], batch);
  }
  if (groups.replica->size() > 1) {
    Bytes message;
    if (groups.is_leader()) {
      message = encode_batch(batch);
    }
    groups.replica->broadcast(message, 0);
    if (!groups.is_leader()) {
      decode_batch(message, batch);
    }
  }
  constexpr std::array<Payload, 1> kNeeded = {Payload::kRollout};
  share_sequences(context, instruction.vertex, iteration, read_sequences(batch), kNeeded);
  return batch;
}

SequenceRange minibatch_of(const Job& job, VertexId vertex, std::int64_t minibatch) {
  return minibatch_sequences(job_sequences(job.inputs),
                             job.config.train.minibatches,
                             minibatch,
                             unit_sequences(job.graph.vertices[index(vertex)], job.inputs));
}

LossNormaliser normaliser_of(const Job& job, const TrainingBatch& batch, SequenceRange minibatch) {
  LossNormaliser normaliser;
  normaliser.sequences = static_cast<double>(minibatch.last - minibatch.first);
  for (std::int64_t s = minibatch.first; s < minibatch.last; ++s) {
    normaliser.tokens += batch.lengths[static_cast<std::size_t>(s)];
  }
  normaliser.max_length = static_cast<double>(job.inputs.workload.generation_length);
  return normaliser;
}

double pairs_of(const Job& job, const TrainingBatch& batch, SequenceRange minibatch) {
  const std::int64_t size = sequences_per_prompt(job.inputs);
  double pairs = 0.0;
  for (std::int64_t u = minibatch.first / size; !batch.kept.empty() && u < minibatch.last / size;
       ++u) {
    pairs += batch.kept[static_cast<std::size_t>(u)];
  }
  return pairs;
}

std::vector<double> concatenate(const TrainingBatch& batch,
                                std::span<const std::int64_t> sequences,
                                Member member) {
  std::vector<double> all;
  for (const std::int64_t s : sequences) {
    const std::vector<double>& part = batch.terms.at(s).*member;
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace rpeg
