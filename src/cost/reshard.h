#pragma once

#include "rpeg/cost/cost_model.h"

// Moving a model's weights from the layout of one vertex to that of another.

namespace rpeg {

/// Elements of a model that the rank `b` of layout `to` needs and the rank `a` of layout `from`
/// holds: what a GPU that is both keeps in place. Of a rank with itself: all it holds, without the
/// padding of the vocabulary, which nobody sends.
double common_elements(const ModelSpec& model,
                       ModelRole role,
                       const Parallelism& from,
                       int rank_from,
                       const Parallelism& to,
                       int rank_to);

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
