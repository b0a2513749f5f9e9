#include "runtime/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "rpeg/base/error.h"
#include "rpeg/loss/policy_loss.h"
#include "runtime/batches.h"
#include "runtime/training_batch.h"

namespace rpeg {
namespace {

/// One mini-batch of one pass.
struct Step {
  RankContext& context;
  const TrainingBatch& batch;
  HeldModel& model;
  Comm& group;
  Report& report;
  VertexId vertex{};
  std::int64_t iteration = 0;
  std::int64_t epoch = 0;
  std::int64_t minibatch = 0;
  LossNormaliser normaliser;

  bool is_critic() const { return context.vertex(vertex).model == ModelRole::kCritic; }
  std::string where() const {
    return fmt::format(
        "{}, iteration {}, mini-batch {}", context.vertex(vertex).name, iteration, minibatch);
  }
};

/// True while the weights are those that generated the rollouts: the ratio must be 1.
bool is_on_policy(const Step& step) { return step.epoch == 0 && step.minibatch == 0; }

void count_mismatch(const Step& step,
                    std::span<const std::int64_t> sequences,
                    std::span<const double> logprob) {
  const IterationData& data = step.context.data.at(step.iteration);
  std::size_t r = 0;
  for (const std::int64_t s : sequences) {
    for (const float generated : rollout_of(data, s).logprobs) {
      const double difference = std::abs(static_cast<double>(generated) - logprob[r++]);
      step.report[Sum::kMismatch] += difference;
      step.report[Sum::kMismatchTokens] += 1.0;
      step.report.mismatch_max = std::max(step.report.mismatch_max, difference);
    }
  }
}

void count_policy(const Step& step, const PolicyLoss& loss, std::span<const double> entropy) {
  const auto tokens = static_cast<double>(entropy.size());
  step.report[Sum::kClippedTokens] += loss.clipped_tokens;
  step.report[Sum::kPolicyTokens] += tokens;
  if (step.epoch == 0) {
    step.report[Sum::kOldKl] += loss.kl_old_sum;
    step.report[Sum::kFirstPassTokens] += tokens;
    for (const double nats : entropy) {
      step.report[Sum::kEntropy] += nats;
    }
  }
}

/// Forward and backward of the policy on one micro-batch; returns its share of the loss.
double policy_micro_batch(Step& step, std::span<const std::int64_t> sequences) {
  RankContext& context = step.context;
  const PolicyLossOptions& options = context.job.config.train.policy;
  const auto temperature = static_cast<float>(context.job.config.sampling.temperature);
  const PackedSequences packed =
      pack_sequences(context, context.data.at(step.iteration), sequences);
  const Model<float> model = step.model.model();
  TokenScores<float> scores;
  forward_scores(model, packed.batch, temperature, context.activations, scores);
  const auto logprob = gather_response(packed, scores.logprob, Anchor::kToken);
  const auto entropy = gather_response(packed, scores.entropy, Anchor::kToken);
  const auto old_logprob = concatenate(step.batch, sequences, &TrainingTerms::old_logprob);
  const auto advantages = concatenate(step.batch, sequences, &TrainingTerms::advantages);
  const auto ref_logprob = options.kl_coef == 0.0
                               ? std::vector<double>{}
                               : concatenate(step.batch, sequences, &TrainingTerms::ref_logprob);
  const PolicyLoss loss =
      policy_loss({packed.starts, logprob, old_logprob, advantages, ref_logprob, entropy},
                  step.normaliser,
                  options);
  count_policy(step, loss, entropy);
  if (is_on_policy(step)) {
    count_mismatch(step, sequences, logprob);
  }
  const auto d_logprob = scatter_response(packed, loss.d_logprob, Anchor::kToken);
  std::vector<float> d_entropy;
  if (!loss.d_entropy.empty()) {
    d_entropy = scatter_response(packed, loss.d_entropy, Anchor::kToken);
  }
  backward_scores<float>(model,
                         packed.batch,
                         temperature,
                         context.activations,
                         d_logprob,
                         d_entropy,
                         step.model.training->gradient);
  return loss.loss;
}

/// The same of the critic.
double value_micro_batch(Step& step, std::span<const std::int64_t> sequences) {
  RankContext& context = step.context;
  const PackedSequences packed =
      pack_sequences(context, context.data.at(step.iteration), sequences);
  const Model<float> model = step.model.model();
  std::vector<float> per_token;
  forward_values(model, packed.batch, context.activations, per_token);
  const auto values = gather_response(packed, per_token, Anchor::kPredecessor);
  const ValueLoss loss = value_loss(values,
                                    concatenate(step.batch, sequences, &TrainingTerms::old_values),
                                    concatenate(step.batch, sequences, &TrainingTerms::returns),
                                    step.normaliser,
                                    context.job.config.train.value_clip,
                                    context.job.config.train.policy.aggregation,
                                    packed.starts);
  const auto d_values = scatter_response(packed, loss.d_values, Anchor::kPredecessor);
  backward_values<float>(
      model, packed.batch, context.activations, d_values, step.model.training->gradient);
  return loss.loss;
}

/// Sums the gradient over the group, clips it and updates the weights; returns the norm before
/// clipping.
double update_weights(Step& step) {
  const TrainConfig& train = step.context.job.config.train;
  TrainingState& training = *step.model.training;
  step.group.all_reduce_sum(std::span<float>(training.gradient));
  const double norm = gradient_norm(training.gradient);
  check_finite(norm, "gradient norm", step.where());
  const double scale =
      train.grad_clip > 0.0 && norm > train.grad_clip ? train.grad_clip / norm : 1.0;
  AdamWOptions options;
  options.learning_rate =
      (step.is_critic() ? train.learning_rate_critic : train.learning_rate_actor) *
      schedule_factor(train, step.iteration);
  options.beta1 = train.beta1;
  options.beta2 = train.beta2;
  options.eps = train.eps;
  options.weight_decay = train.weight_decay;
  adamw_update(options, training.gradient, scale, training.optimizer, step.model.weights);
  return norm;
}

void run_step(Step& step, std::span<const std::int64_t> sequences) {
  std::fill(step.model.training->gradient.begin(), step.model.training->gradient.end(), 0.0F);
  const std::int64_t parts = step.context.job.plan.vertices[index(step.vertex)].micro_batches;
  std::array<double, 1> loss{};
  for (const auto micro_batch : micro_batches(sequences, parts)) {
    loss[0] += step.is_critic() ? value_micro_batch(step, micro_batch)
                                : policy_micro_batch(step, micro_batch);
  }
  // Checked on the sum, so that all ranks of the group stop at the same place.
  step.group.all_reduce_sum(std::span<double>(loss));
  check_finite(loss[0], "loss", step.where());
  const double norm = update_weights(step);
  if (step.group.rank() == 0) {
    step.report[step.is_critic() ? Sum::kValueLoss : Sum::kPolicyLoss] += loss[0];
    step.report[step.is_critic() ? Sum::kGradientNormCritic : Sum::kGradientNormActor] += norm;
  }
}

}  // namespace

void train_vertex(RankContext& context, const Instruction& instruction, std::int64_t iteration) {
  const TrainConfig& train = context.job.config.train;
  const TrainingBatch batch = build_training_batch(context, instruction, iteration);
  const ModelRole role = context.vertex(instruction.vertex).model;
  HeldModel& model = model_for(context.models, role, iteration);
  const std::int64_t sequences = context.job.inputs.workload.sequences();
  for (std::int64_t epoch = 0; epoch < train.epochs; ++epoch) {
    for (std::int64_t j = 0; j < train.minibatches; ++j) {
      const auto own =
          intersect(instruction.sequences, {minibatch_sequences(sequences, train.minibatches, j)});
      Step step{.context = context,
                .batch = batch,
                .model = model,
                .group = *context.groups.at(instruction.vertex),
                .report = context.reports[iteration],
                .vertex = instruction.vertex,
                .iteration = iteration,
                .epoch = epoch,
                .minibatch = j,
                .normaliser = normaliser_of(context, batch, j)};
      run_step(step, sequence_list(own));
    }
  }
  model.version = iteration + 1;
}

}  // namespace rpeg
