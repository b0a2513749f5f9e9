#include "runtime/training.h"

#include <array>

#include "rpeg/base/error.h"
#include "rpeg/loss/kl_controller.h"
#include "runtime/batches.h"
#include "runtime/optimizer_step.h"
#include "runtime/training_losses.h"

namespace rpeg {
namespace {

using Pieces = std::vector<std::vector<std::int64_t>>;

/// The replica's pairs of a mini-batch in micro-batches, each as chosen, rejected, chosen, …
Pieces pair_pieces(const MiniBatch& step, std::int64_t parts) {
  const IterationData& data = step.context.data.at(step.iteration);
  const SequenceRange range = step.sequences;
  std::vector<SequencePair> pairs;
  std::vector<std::int64_t> tokens;
  for (const SequencePair& pair : step.batch.pairs) {
    if (pair.chosen >= range.first && pair.chosen < range.last) {
      pairs.push_back(pair);
      tokens.push_back(sequence_tokens(step.context, data, pair.chosen) +
                       sequence_tokens(step.context, data, pair.rejected));
    }
  }
  Pieces pieces;
  for (const std::vector<std::size_t>& piece : balance_units(tokens, parts)) {
    std::vector<std::int64_t>& list = pieces.emplace_back();
    for (const std::size_t unit : piece) {
      list.push_back(pairs[unit].chosen);
      list.push_back(pairs[unit].rejected);
    }
  }
  return pieces;
}

/// The replica's part of a mini-batch in micro-batches.
Pieces pieces_of(const MiniBatch& step) {
  const std::int64_t parts = plan_of(step.job(), step.vertex).micro_batches;
  if (step.job().inputs.policy.algorithm == Algorithm::kDpo) {
    return pair_pieces(step, parts);
  }
  const SequenceRange range = step.sequences;
  std::vector<std::int64_t> sequences;
  for (const std::int64_t s : step.batch.own) {
    if (s >= range.first && s < range.last) {
      sequences.push_back(s);
    }
  }
  return micro_batches(step.context, step.context.data.at(step.iteration), sequences, parts);
}

/// Forward and backward of the replica's part; the losses of the whole mini-batch, on all ranks.
LossShare accumulate(MiniBatch& step) {
  const Pieces pieces = pieces_of(step);
  const std::vector<PackedSequences> packed =
      pack_micro_batches(step.context, step.context.data.at(step.iteration), pieces);
  std::array<double, 2> losses{};
  run_forward_backward(
      step.model.model(),
      batches_of(packed),
      step.job().inputs.optimizer.recompute,
      step.context.activations,
      [&](std::size_t i, std::span<const float> hidden, std::span<float> d_hidden) {
        const LossShare share = add_loss(step, pieces[i], packed[i], hidden, d_hidden);
        losses[0] += share.policy;
        losses[1] += share.value;
      },
      step.model.training->gradient);
  if (step.groups.place.tp != 0) {
    losses = {};  // every tensor-parallel rank of the last stage has the same
  }
  // Checked on the sum, so that all ranks of the block stop at the same place.
  step.groups.all->all_reduce_sum(std::span<double>(losses));
  check_finite(losses[0] + losses[1], "loss", step.where());
  return {losses[0], losses[1]};
}

UpdateOptions update_options(const MiniBatch& step) {
  const TrainConfig& train = step.job().config.train;
  UpdateOptions options;
  options.adamw = {.learning_rate = (step.trains_policy() ? train.learning_rate_actor
                                                          : train.learning_rate_critic) *
                                    schedule_factor(train, step.iteration),
                   .beta1 = train.beta1,
                   .beta2 = train.beta2,
                   .eps = train.eps,
                   .weight_decay = train.weight_decay};
  options.grad_clip = train.grad_clip;
  options.zero_stage = step.job().inputs.optimizer.zero_stage;
  if (step.context.options.on_gradient) {
    options.on_gradient = [&step](std::span<const float> gradient) {
      step.context.options.on_gradient({step.context.vertex(step.vertex).name,
                                        step.iteration,
                                        step.context.world.rank(),
                                        step.model.layout,
                                        gradient});
    };
  }
  return options;
}

void run_minibatch(MiniBatch& step) {
  std::vector<float>& gradient = step.model.training->gradient;
  std::fill(gradient.begin(), gradient.end(), 0.0F);
  const LossShare loss = accumulate(step);
  const double norm = update_weights(step.model, step.groups, update_options(step), step.where());
  if (step.groups.all->rank() == 0) {
    step.report[Sum::kPolicyLoss] += loss.policy;
    step.report[Sum::kValueLoss] += loss.value;
    step.report[step.trains_policy() ? Sum::kGradientNormActor : Sum::kGradientNormCritic] += norm;
  }
}

}  // namespace

void train_vertex(RankContext& context, const Instruction& instruction, std::int64_t iteration) {
  const TrainConfig& train = context.job.config.train;
  HeldModel& model = model_for(context.job, context.models, instruction.vertex, iteration);
  std::optional<double>& kl_coef = model.training->reward_kl_coef;
  kl_coef = kl_coef.value_or(train.reward_kl_coef);
  const TrainingBatch batch = build_training_batch(context, instruction, iteration, *kl_coef);
  for (std::int64_t epoch = 0; epoch < train.epochs; ++epoch) {
    for (std::int64_t j = 0; j < train.minibatches; ++j) {
      const SequenceRange sequences = minibatch_of(context.job, instruction.vertex, j);
      MiniBatch step{.context = context,
                     .batch = batch,
                     .model = model,
                     .groups = context.groups_of(instruction.vertex),
                     .report = context.reports[iteration],
                     .vertex = instruction.vertex,
                     .iteration = iteration,
                     .epoch = epoch,
                     .index = j,
                     .sequences = sequences,
                     .normaliser = normaliser_of(context.job, batch, sequences),
                     .pairs = pairs_of(context.job, batch, sequences)};
      run_minibatch(step);
    }
  }
  kl_coef = next_kl_coef(
      train.kl_controller, *kl_coef, batch.behaviour_kl, static_cast<double>(batch.lengths.size()));
  model.version = iteration + 1;
}

}  // namespace rpeg
