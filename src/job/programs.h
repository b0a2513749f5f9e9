#pragma once

#include "rpeg/job/job.h"

namespace rpeg {

/// Fills `ranks`, one per GPU that a vertex uses, in the order of global GPU indices.
void assign_ranks(Job* job);
/// Fills `graph` and `plan_vertex` from inputs and plan.
void build_task_graph(Job* job);
/// Fills `blocks` and `vertex_block`; needs the ranks.
void build_blocks(Job* job);
/// Fills `copies` and `vertex_copy`.
void build_copies(Job* job);
/// Fills `transfers`: one for each copy that is neither trained nor frozen. Each receiver gets
/// every slice that it holds: from itself where it trains it, else from the holder that has sent
/// least.
void build_transfers(Job* job);
/// Fills the programs of all ranks. In the plan's order, for each vertex: the rank receives what it
/// lacks, computes, sends. Weights leave after the training and arrive at the end of the iteration.
void build_programs(Job* job);

/// All of the above: from inputs, training settings, graph, plan and schedule to what runs where.
void build_execution(Job* job);

}  // namespace rpeg
