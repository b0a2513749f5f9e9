#pragma once

#include <vector>

#include "rpeg/job/job.h"

namespace rpeg {

/// Ascending sequences of `a` that are not in `b`; both ascending.
std::vector<SequenceRange> subtract(const std::vector<SequenceRange>& a,
                                    const std::vector<SequenceRange>& b);
/// Ascending sequences of either list; both ascending.
std::vector<SequenceRange> unite(const std::vector<SequenceRange>& a,
                                 const std::vector<SequenceRange>& b);

/// What moves along a data edge.
std::vector<Payload> edge_payloads(const Graph& graph, const Edge& edge);

/// Sequences that replica `replica` of a vertex handles.
std::vector<SequenceRange> replica_work(const Job& job, VertexId vertex, int replica);

/// Vertices in the order in which every rank's program runs them: the plan's schedule, with tasks
/// that lag an iteration behind moved to the end of their own; the graph's order when the plan has
/// no schedule. Throws kUsage for a schedule that misses a vertex or runs one before its inputs.
std::vector<VertexId> program_order(const Job& job);

/// What the vertex itself makes.
std::vector<Payload> produced_payloads(const Vertex& vertex);

/// Message tags: one for every payload of every edge, then one for every weights transfer, so that
/// a pair of ranks has at most one message of a tag in an iteration.
int data_tag(std::size_t edge, Payload payload);
int weights_tag(const Graph& graph, std::size_t transfer);

}  // namespace rpeg
