#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "trace/check_context.h"

namespace rpeg {
namespace {

/// A computation of a vertex on one rank.
struct Member {
  int rank = 0;
  std::size_t instruction = 0;
};

std::vector<Member> members_of(const CheckContext& context,
                               VertexId vertex,
                               const std::vector<int>& ranks) {
  std::vector<Member> members;
  for (const int rank : ranks) {
    if (const auto instruction = context.compute_instruction(rank, vertex)) {
      members.push_back({rank, *instruction});
    }
  }
  return members;
}

void check_overlap(CheckContext& context, const TraceEvent& a, const TraceEvent& b) {
  const double tolerance_s = context.tolerance_s(a.rank, b.rank);
  const bool meet = a.start_s <= b.end_s + tolerance_s && b.start_s <= a.end_s + tolerance_s;
  if (!meet) {
    context.add("group",
                fmt::format("ranks that compute together were not inside at the same time, clocks "
                            "being right within {:.9f} s: {}; and {}",
                            tolerance_s,
                            event_text(a),
                            event_text(b)));
  }
}

/// Every member met the first, the leader. Training sums gradients over all: there the one that
/// starts last met the one that ends first.
void check_group(CheckContext& context,
                 const std::vector<Member>& members,
                 std::int64_t iteration,
                 bool all_meet) {
  std::vector<const TraceEvent*> events;
  for (const Member& member : members) {
    const Instruction& step = context.program(member.rank)[member.instruction];
    const bool works = has_slots(context.job, step) ? !step.slots.empty() : !step.sequences.empty();
    const TraceEvent* event = context.event(member.rank, member.instruction, iteration);
    if (works && event != nullptr) {
      events.push_back(event);
    }
  }
  if (events.size() < 2) {
    return;
  }
  if (all_meet) {
    const auto* last = *std::ranges::max_element(events, {}, &TraceEvent::start_s);
    const auto* first = *std::ranges::min_element(events, {}, &TraceEvent::end_s);
    if (first != last) {
      check_overlap(context, *last, *first);
    }
    return;
  }
  for (std::size_t i = 1; i < events.size(); ++i) {
    check_overlap(context, *events.front(), *events[i]);
  }
}

/// Leaders hold the data of a replica: what one of them made and the other one needs.
struct Dependency {
  Member producer;
  Member consumer;
};

std::vector<Dependency> dependencies(const CheckContext& context, const Edge& edge) {
  std::vector<Dependency> result;
  const auto producers = members_of(context, edge.from, vertex_leaders(context.job, edge.from));
  const auto consumers = members_of(context, edge.to, vertex_leaders(context.job, edge.to));
  for (const Member& producer : producers) {
    for (const Member& consumer : consumers) {
      result.push_back({producer, consumer});
    }
  }
  return result;
}

/// Whether the two computations share a sequence; no when the trace does not tell.
bool share_sequences(const CheckContext& context,
                     const Dependency& dependency,
                     std::int64_t iteration) {
  const auto step = [&](const Member& member) -> const Instruction& {
    return context.program(member.rank)[member.instruction];
  };
  const Instruction& producer = step(dependency.producer);
  const Instruction& consumer = step(dependency.consumer);
  if (!has_slots(context.job, producer) && !has_slots(context.job, consumer)) {
    return !intersect(producer.sequences, consumer.sequences).empty();
  }
  const auto made = sequences_of(context, producer, iteration);
  const auto used = sequences_of(context, consumer, iteration);
  if (!made || !used) {
    return false;
  }
  std::set<std::int64_t> ids;
  for (const TracedSequence& sequence : *made) {
    ids.insert(sequence.sequence);
  }
  return std::ranges::any_of(
      *used, [&](const TracedSequence& sequence) { return ids.contains(sequence.sequence); });
}

void check_edge(CheckContext& context, const Edge& edge) {
  for (const Dependency& dependency : dependencies(context, edge)) {
    for (std::int64_t iteration = context.first; iteration < context.last; ++iteration) {
      const TraceEvent* made =
          context.event(dependency.producer.rank, dependency.producer.instruction, iteration);
      const TraceEvent* used = context.event(
          dependency.consumer.rank, dependency.consumer.instruction, iteration + edge.delta);
      if (made == nullptr || used == nullptr) {
        continue;
      }
      const double tolerance_s = context.tolerance_s(made->rank, used->rank);
      if (!(used->start_s >= made->end_s - tolerance_s) &&
          share_sequences(context, dependency, iteration)) {
        context.add("causality",
                    fmt::format("it started before its input was there, clocks being right within "
                                "{:.9f} s: {}; its input: {}",
                                tolerance_s,
                                event_text(*used),
                                event_text(*made)));
      }
    }
  }
}

/// True where the ranks of a replica may pass each other because nothing is left to compute: what
/// ends in a later stage of generation may have ended already, and in online DPO the reference
/// scores no pair when all samples of every prompt have equal rewards.
bool may_have_no_work(const Job& job, const Vertex& vertex) {
  const bool later_stage = vertex.op == Op::kGenerate && vertex.stage > 1;
  const bool scores_pairs = vertex.op == Op::kInferReference &&
                            job.inputs.policy.algorithm == Algorithm::kDpo &&
                            job.inputs.policy.dpo_mode == DpoMode::kOnline;
  return later_stage || scores_pairs;
}

}  // namespace

void check_causality(CheckContext& context) {
  for (std::size_t v = 0; v < context.job.graph.vertices.size(); ++v) {
    const VertexId vertex{static_cast<std::int32_t>(v)};
    const Block& block = block_of(context.job, vertex);
    const bool trains = is_training(context.job.graph.vertices[v].op);
    if (may_have_no_work(context.job, context.job.graph.vertices[v])) {
      continue;
    }
    std::vector<std::vector<int>> groups;
    if (trains) {
      groups.push_back(block.ranks);
    } else {
      for (int dp = 0; dp < block.parallelism.dp; ++dp) {
        groups.push_back(replica_ranks(block, dp));
      }
    }
    for (const std::vector<int>& ranks : groups) {
      const std::vector<Member> members = members_of(context, vertex, ranks);
      for (std::int64_t iteration = context.first; iteration < context.last; ++iteration) {
        check_group(context, members, iteration, trains);
      }
    }
  }
  for (const Edge& edge : context.job.graph.edges) {
    if (edge.kind == EdgeKind::kData) {
      check_edge(context, edge);
    }
  }
}

}  // namespace rpeg
