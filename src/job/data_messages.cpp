#include "job/data_messages.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "job/held_data.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// Replicas by what they hold: ranges ascend in both ends, and may overlap.
class ReplicaIndex {
 public:
  void add(const SequenceList& ranges, int replica) {
    for (const SequenceRange& range : ranges) {
      ranges_.emplace_back(range, replica);
    }
  }
  void sort() { std::sort(ranges_.begin(), ranges_.end()); }

  /// Replicas that hold any of `wanted`, ascending.
  std::vector<int> find(const SequenceList& wanted) const {
    std::vector<int> found;
    for (const SequenceRange& range : wanted) {
      auto at = std::partition_point(ranges_.begin(), ranges_.end(), [&](const auto& entry) {
        return entry.first.last <= range.first;
      });
      for (; at != ranges_.end() && at->first.first < range.last; ++at) {
        found.push_back(at->second);
      }
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

 private:
  std::vector<std::pair<SequenceRange, int>> ranges_;
};

/// The replicas of a vertex.
struct Replicas {
  std::vector<int> leaders;
  std::vector<ReplicaWork> work;
  std::vector<SequenceList> possible;  ///< sequences that each may handle
  ReplicaIndex by_sequence;            ///< of `possible`
  ReplicaIndex by_slot;
};

class MessageFinder {
 public:
  explicit MessageFinder(const Job& job) : job_(job) {
    for (std::size_t i = 0; i < job.graph.vertices.size(); ++i) {
      const VertexId vertex{static_cast<std::int32_t>(i)};
      replicas_.push_back(build_replicas(vertex));
      for (const Payload payload : produced_payloads(job.graph, vertex)) {
        for (std::size_t r = 0; r < replicas_[i].leaders.size(); ++r) {
          const ReplicaWork& work = replicas_[i].work[r];
          // A stage knows all sequences in its slots.
          const bool is_cut = job.graph.vertices[i].stage > 0;
          add_data(&held_[{replicas_[i].leaders[r], vertex, payload}],
                   is_cut ? ReplicaWork{{}, work.slots} : work);
        }
      }
    }
  }

  std::vector<DataMessage> find(const std::vector<VertexId>& order) {
    for (const VertexId vertex : order) {
      for (std::size_t edge = 0; edge < job_.graph.edges.size(); ++edge) {
        if (job_.graph.edges[edge].to != vertex) {
          continue;
        }
        for (std::size_t replica = 0; replica < replicas_[index(vertex)].leaders.size();
             ++replica) {
          consume(edge, replica);
        }
      }
    }
    return std::move(messages_);
  }

 private:
  using Key = std::tuple<int, VertexId, Payload>;  // rank, producer, what

  Replicas build_replicas(VertexId vertex) const {
    Replicas result;
    result.leaders = vertex_leaders(job_, vertex);
    for (std::size_t r = 0; r < result.leaders.size(); ++r) {
      const int replica = static_cast<int>(r);
      result.work.push_back(replica_work(job_, vertex, replica));
      const ReplicaWork& work = result.work.back();
      const bool is_chunk = work.sequences.empty() && !work.slots.empty();
      result.possible.push_back(is_chunk ? sequences_behind(vertex, work.slots) : work.sequences);
      result.by_sequence.add(result.possible.back(), replica);
      result.by_slot.add(work.slots, replica);
    }
    result.by_sequence.sort();
    result.by_slot.sort();
    return result;
  }

  /// The sequences of the generating replicas that have any of a chunk's slots. Generation comes
  /// first in the graph.
  SequenceList sequences_behind(VertexId chunk, const SequenceList& slots) const {
    const std::int32_t stage = job_.graph.vertices[index(chunk)].stage;
    for (const Replicas& generation : replicas_) {
      const auto vertex = static_cast<std::size_t>(&generation - replicas_.data());
      const Vertex& what = job_.graph.vertices[vertex];
      if (what.op != Op::kGenerate || what.stage != stage) {
        continue;
      }
      SequenceList behind;
      for (const int replica : generation.by_slot.find(slots)) {
        behind = unite(behind, generation.work[static_cast<std::size_t>(replica)].sequences);
      }
      return behind;
    }
    throw Error(ErrorKind::kInternal, "job: a chunk without its stage of generation");
  }

  void consume(std::size_t edge_index, std::size_t replica) {
    const Edge& edge = job_.graph.edges[edge_index];
    if (keeps_order(edge)) {
      keep_order(edge_index, replica);
    }
    for (const Payload payload : edge_payloads(job_, edge)) {
      if (job_.graph.vertices[index(edge.from)].stage > 0) {
        consume_slots(edge_index, payload, replica);
      } else {
        consume_sequences(edge_index, payload, replica);
      }
    }
  }

  /// An empty message from the producer, unless the ranks' own programs keep the order.
  void keep_order(std::size_t edge_index, std::size_t replica) {
    const Edge& edge = job_.graph.edges[edge_index];
    const int to = replicas_[index(edge.to)].leaders[replica];
    if (place_in_block(block_of(job_, edge.from), to)) {
      return;
    }
    send(edge_index, Payload::kRollout, 0, replica, {});
    messages_.back().delta = edge.delta;
  }

  void consume_sequences(std::size_t edge_index, Payload payload, std::size_t replica) {
    const Edge& edge = job_.graph.edges[edge_index];
    const Replicas& producers = replicas_[index(edge.from)];
    const Replicas& consumers = replicas_[index(edge.to)];
    HeldData& held = held_[{consumers.leaders[replica], edge.from, payload}];
    const auto missing = missing_data(held, consumers.work[replica]);
    if (!missing) {
      return;
    }
    for (const int from : producers.by_sequence.find(missing->sequences)) {
      const SequenceList& has = producers.work[static_cast<std::size_t>(from)].sequences;
      send(edge_index, payload, from, replica, {intersect(has, missing->sequences), {}});
    }
    add_data(&held, *missing);
  }

  /// From a stage or chunk: to the chunk that takes over its slots, or to training, which takes its
  /// own sequences out of them.
  void consume_slots(std::size_t edge_index, Payload payload, std::size_t replica) {
    const Edge& edge = job_.graph.edges[edge_index];
    const Replicas& producers = replicas_[index(edge.from)];
    const Replicas& consumers = replicas_[index(edge.to)];
    const ReplicaWork& work = consumers.work[replica];
    const bool to_chunk = job_.graph.vertices[index(edge.to)].stage > 0;
    const int to = consumers.leaders[replica];
    HeldData& held = held_[{to, edge.from, payload}];
    for (const int from : to_chunk ? producers.by_slot.find(work.slots)
                                   : producers.by_sequence.find(work.sequences)) {
      const auto at = static_cast<std::size_t>(from);
      const SequenceList& slots = producers.work[at].slots;
      const ReplicaWork wanted =
          to_chunk ? ReplicaWork{{}, intersect(slots, work.slots)}
                   : ReplicaWork{intersect(work.sequences, producers.possible[at]), slots};
      if (slots.empty() || producers.leaders[at] == to) {
        continue;
      }
      if (auto missing = missing_data(held, wanted)) {
        add_data(&held, *missing);
        send(edge_index, payload, from, replica, std::move(*missing));
      }
    }
  }

  void send(std::size_t edge_index, Payload payload, int from, std::size_t to, ReplicaWork work) {
    const Edge& edge = job_.graph.edges[edge_index];
    messages_.push_back({edge.from,
                         edge.to,
                         replicas_[index(edge.from)].leaders[static_cast<std::size_t>(from)],
                         replicas_[index(edge.to)].leaders[to],
                         data_tag(edge_index, payload),
                         payload,
                         std::move(work)});
  }

  const Job& job_;
  std::vector<Replicas> replicas_;  // by vertex
  std::map<Key, HeldData> held_;
  std::vector<DataMessage> messages_;
};

}  // namespace

std::vector<DataMessage> find_data_messages(const Job& job, const std::vector<VertexId>& order) {
  return MessageFinder(job).find(order);
}

std::int64_t data_capacity_bytes(const Job& job, const Instruction& instruction) {
  std::int64_t sequences = sequence_count(instruction.sequences);
  if (!instruction.slots.empty()) {
    const std::int64_t slots = sequence_count(instruction.slots);
    sequences = instruction.sequences.empty() ? slots : std::min(sequences, slots);
  }
  const std::int64_t unit =
      unit_sequences(job.graph.vertices[index(instruction.vertex)], job.inputs);
  if (instruction.payload == Payload::kRefLogprobs && unit > 1) {
    sequences = sequences / unit * 2;  // the reference sees the best and the worst of a prompt
  }
  return message_capacity_bytes(
      instruction.payload, sequences, job.inputs.workload.generation_length);
}

}  // namespace rpeg
