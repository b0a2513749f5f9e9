#pragma once

#include "rpeg/job/job.h"

namespace rpeg {

/// Fills `ranks`, one per GPU that a vertex uses, in the order of global GPU indices.
void assign_ranks(Job* job);
/// Fills `groups`: one per training vertex.
void build_groups(Job* job);
/// Fills `transfers` from the weights edges of the graph. Tensors are dealt to the producer's
/// replicas largest first, each to the replica with the fewest bytes so far. A rank that already
/// has the new weights (it trains the model, or an earlier transfer brings them) gets none.
void build_transfers(Job* job);
/// Fills the programs of all ranks. In the plan's order, for each vertex: the rank receives what it
/// lacks, computes, sends. Weights leave after the training and arrive at the end of the iteration.
void build_programs(Job* job);

/// All of the above: from inputs, training settings, graph, plan and schedule to what runs where.
void build_execution(Job* job);

}  // namespace rpeg
