#pragma once

#include <vector>

#include "rpeg/job/job.h"

namespace rpeg {

using SequenceList = std::vector<SequenceRange>;

/// Ascending sequences of `a` that are not in `b`; both ascending.
SequenceList subtract(const SequenceList& a, const SequenceList& b);
/// Ascending sequences of either list; both ascending.
SequenceList unite(const SequenceList& a, const SequenceList& b);

/// What the vertex itself makes: generation scores its rollouts when no reward model does.
std::vector<Payload> produced_payloads(const Graph& graph, VertexId vertex);
/// What moves along a data edge. Scores go where they are read: to training, and to what ranks the
/// samples of online DPO.
std::vector<Payload> edge_payloads(const Job& job, const Edge& edge);
/// Whether an edge keeps an order between vertices of different iterations that share no data.
bool keeps_order(const Edge& edge);

/// What replica `replica` of a vertex handles: sequences; slots for a chunk; both for a stage.
struct ReplicaWork {
  SequenceList sequences;
  SequenceList slots;
  bool operator==(const ReplicaWork&) const = default;
};
ReplicaWork replica_work(const Job& job, VertexId vertex, int replica);

/// Where a vertex stands in the order that every period repeats: the instance of iteration k runs
/// in period k + shift at place `order`.
struct TaskPosition {
  std::int64_t shift = 0;
  std::int64_t order = 0;
  auto operator<=>(const TaskPosition&) const = default;
};

/// By vertex: the plan's schedule, or the graph's order when the plan has none. Throws kUsage for a
/// schedule that misses a vertex or runs one before what it waits for.
std::vector<TaskPosition> task_positions(const Job& job);
/// Vertices in the order of a period, and in that in which an iteration runs through them.
std::vector<VertexId> period_order(const std::vector<TaskPosition>& positions);
std::vector<VertexId> iteration_order(const std::vector<TaskPosition>& positions);

/// Message tags: one for every payload of every edge, then one for every weights transfer, so that
/// a pair of ranks has at most one message of a tag in an iteration.
int data_tag(std::size_t edge, Payload payload);
int weights_tag(const Graph& graph, std::size_t transfer);

}  // namespace rpeg
