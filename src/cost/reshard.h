#pragma once

#include "cost/shard.h"
#include "rpeg/cost/cost_model.h"

// Moving a model's weights from the layout of one vertex to that of another.

namespace rpeg {

/// Neighbouring ranks of one layout: one GPU, the GPUs of a node, those of a rack.
struct Ranks {
  Parallelism parallelism;
  int first = 0;
  int count = 1;
};

/// Distinct elements of a model that `a` and `b` both hold, each counted once however many of the
/// ranks hold it. Of ranks with themselves: all they hold, without the padding of the vocabulary,
/// which nobody sends. `head` is what the receiver needs.
double common_elements(const ModelSpec& model, Head head, const Ranks& a, const Ranks& b);

/// What the receivers of one transfer get, in elements of the model.
struct TransferVolume {
  double largest_gpu = 0.0;
  double largest_node = 0.0;  ///< what the GPUs of a node need and none of them holds, each once
  double largest_rack = 0.0;  ///< the same of a rack
  double total = 0.0;         ///< over all GPUs
};
/// The work follows the number of pipeline stages, not of nodes, where tensor-parallel groups lie
/// inside nodes.
TransferVolume transfer_volume(const ModelSpec& model,
                               Head head,
                               const VertexPlan& from,
                               const VertexPlan& to);

/// Time and bytes of a transfer that has the wires to itself. `name`, `atoms` and `gpus` are left
/// empty.
TimedTask price_transfer(const Vertex& consumer,
                         const VertexPlan& from,
                         const VertexPlan& to,
                         const WorkloadConfig& config,
                         const HardwareProfile& profile);

/// The slowest tier between any GPU of `a` and any of `b`.
Tier tier_between(const Placement& a, const Placement& b);

}  // namespace rpeg
