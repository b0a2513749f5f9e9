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
