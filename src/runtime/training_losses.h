#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/training_batch.h"

namespace rpeg {

/// One mini-batch of one pass over the batch, on one rank.
struct MiniBatch {
  RankContext& context;
  const TrainingBatch& batch;
  HeldModel& model;
  const BlockGroups& groups;
  Report& report;
  VertexId vertex{};
  std::int64_t iteration = 0;
  std::int64_t epoch = 0;
  std::int64_t index = 0;
  SequenceRange sequences;    ///< of the global mini-batch
  LossNormaliser normaliser;  ///< of the global mini-batch
  double pairs = 0.0;         ///< DPO: kept pairs of the global mini-batch

  const Job& job() const { return context.job; }
  bool is_joint() const { return context.vertex(vertex).op == Op::kTrainJoint; }
  bool trains_policy() const { return context.vertex(vertex).model == ModelRole::kActor; }
  bool trains_values() const { return is_joint() || !trains_policy(); }
  std::string where() const;
};

/// Shares of the mini-batch's losses: those of all micro-batches and replicas add up to the losses.
struct LossShare {
  double policy = 0.0;  ///< or DPO's
  double value = 0.0;   ///< before value_coef
};

/// The loss of one micro-batch from the last stage's output `hidden` (T, h): adds its derivative by
/// `hidden` to `d_hidden` and that by the head's weights to the model's gradient. The critic trains
/// on the value loss, a trunk that it shares with the actor on policy + value_coef · value, DPO on
/// consecutive sequences chosen, rejected. Every tensor-parallel rank gets the same; one counts the
/// metrics.
LossShare add_loss(MiniBatch& step,
                   std::span<const std::int64_t> sequences,
                   const PackedSequences& packed,
                   std::span<const float> hidden,
                   std::span<float> d_hidden);

}  // namespace rpeg
