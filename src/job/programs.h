#pragma once

#include "rpeg/job/job.h"

namespace rpeg {

/// Fills `ranks`, one per GPU that a vertex uses, in the order of global GPU indices.
void assign_ranks(Job* job);
/// Fills `graph` and `plan_vertex` from inputs and plan.
void build_task_graph(Job* job);
/// Fills `blocks` and `vertex_block`; needs the ranks.
void build_blocks(Job* job);
/// Fills `copies` and `vertex_copy`. Vertices of one model, block and staleness share a copy,
/// unless the schedule lets one of them reach the next iteration before the other has ended this
/// one: they need different versions then.
void build_copies(Job* job);
/// Fills `transfers`: one for each copy that is neither trained nor frozen. Each receiver gets
/// every slice that it holds: from itself what it trains, the rest from the nearest holders (same
/// node, same rack), of those from the one that has sent least.
void build_transfers(Job* job);
/// Fills the programs of all ranks: in the order of the plan's schedule, for each vertex: the rank
/// receives what it lacks, data before weights, computes, sends.
void build_programs(Job* job);

/// All of the above: from inputs, training settings, graph, plan and schedule to what runs where.
void build_execution(Job* job);

}  // namespace rpeg
