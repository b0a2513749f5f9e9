#include "job/programs.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "job/layout.h"

namespace rpeg {
namespace {

/// A data message: what `from` produced and `to` needs.
struct DataMessage {
  VertexId producer{};
  VertexId consumer{};
  int from = 0;
  int to = 0;
  int tag = 0;
  Payload payload = Payload::kRollout;
  std::vector<SequenceRange> sequences;
};

Instruction data_instruction(const Job& job, const DataMessage& message, InstructionKind kind) {
  Instruction result;
  result.kind = kind;
  result.vertex = message.producer;
  result.peer = kind == InstructionKind::kSend ? message.to : message.from;
  result.tag = message.tag;
  result.payload = message.payload;
  result.sequences = message.sequences;
  result.capacity_bytes = message_capacity_bytes(
      message.payload, sequence_count(message.sequences), job.inputs.workload.generation_length);
  return result;
}

InstructionKind compute_kind(Op op) {
  switch (op) {
    case Op::kGenerate:
      return InstructionKind::kGenerate;
    case Op::kTrain:
    case Op::kTrainJoint:
      return InstructionKind::kTrain;
    case Op::kInferReward:
    case Op::kInferValue:
    case Op::kInferReference:
    case Op::kInferActor:
      return InstructionKind::kInfer;
  }
  return InstructionKind::kInfer;
}

/// Finds the data messages of an iteration, in the order in which their consumers run.
class MessageFinder {
 public:
  MessageFinder(const Job& job, const std::vector<VertexId>& order) : job_(job), order_(order) {
    for (const VertexId vertex : order) {
      ranks_[vertex] = vertex_leaders(job, vertex);
    }
  }

  std::vector<DataMessage> find() {
    for (const VertexId vertex : order_) {
      for (std::size_t replica = 0; replica < ranks_[vertex].size(); ++replica) {
        produce(vertex, static_cast<int>(replica));
      }
    }
    for (const VertexId vertex : order_) {
      for (std::size_t replica = 0; replica < ranks_[vertex].size(); ++replica) {
        for (std::size_t edge = 0; edge < job_.graph.edges.size(); ++edge) {
          if (job_.graph.edges[edge].to == vertex) {
            consume(edge, static_cast<int>(replica));
          }
        }
      }
    }
    return std::move(messages_);
  }

 private:
  using Key = std::tuple<int, VertexId, Payload>;  // rank, producer, what

  void produce(VertexId vertex, int replica) {
    const int rank = ranks_[vertex][static_cast<std::size_t>(replica)];
    for (const Payload payload : produced_payloads(job_.graph.vertices[index(vertex)])) {
      held_[{rank, vertex, payload}] = replica_work(job_, vertex, replica);
    }
  }

  /// Messages that bring what the replica lacks along one edge.
  void consume(std::size_t edge_index, int replica) {
    const Edge& edge = job_.graph.edges[edge_index];
    const int to = ranks_[edge.to][static_cast<std::size_t>(replica)];
    for (const Payload payload : edge_payloads(job_.graph, edge)) {
      auto& held = held_[{to, edge.from, payload}];
      const auto missing = subtract(replica_work(job_, edge.to, replica), held);
      const std::vector<int>& producers = ranks_[edge.from];
      for (std::size_t i = 0; i < producers.size() && !missing.empty(); ++i) {
        auto part = intersect(replica_work(job_, edge.from, static_cast<int>(i)), missing);
        if (!part.empty()) {
          const int tag = data_tag(edge_index, payload);
          messages_.push_back(
              {edge.from, edge.to, producers[i], to, tag, payload, std::move(part)});
        }
      }
      held = unite(held, missing);
    }
  }

  const Job& job_;
  const std::vector<VertexId>& order_;
  std::map<VertexId, std::vector<int>> ranks_;
  std::map<Key, std::vector<SequenceRange>> held_;
  std::vector<DataMessage> messages_;
};

/// Sends after the producer, receives before the consumer.
void add_weights(Job* job, VertexId vertex, InstructionKind kind) {
  const bool sends = kind == InstructionKind::kSendWeights;
  for (std::size_t t = 0; t < job->transfers.size(); ++t) {
    const WeightTransfer& transfer = job->transfers[t];
    if ((sends ? transfer.producer : transfer.consumer) != vertex) {
      continue;
    }
    for (std::size_t m = 0; m < transfer.messages.size(); ++m) {
      const WeightMessage& message = transfer.messages[m];
      Instruction instruction;
      instruction.kind = kind;
      instruction.vertex = transfer.producer;
      instruction.peer = sends ? message.to : message.from;
      instruction.tag = weights_tag(job->graph, t);
      instruction.capacity_bytes = message.bytes;
      instruction.transfer = static_cast<int>(t);
      instruction.message = static_cast<int>(m);
      const int rank = sends ? message.from : message.to;
      job->ranks[static_cast<std::size_t>(rank)].program.push_back(std::move(instruction));
    }
  }
}

void add_compute(Job* job, VertexId vertex) {
  const Block& block = block_of(*job, vertex);
  for (int dp = 0; dp < block.parallelism.dp; ++dp) {
    for (const int rank : replica_ranks(block, dp)) {
      Instruction instruction;
      instruction.kind = compute_kind(job->graph.vertices[index(vertex)].op);
      instruction.vertex = vertex;
      instruction.sequences = replica_work(*job, vertex, dp);
      job->ranks[static_cast<std::size_t>(rank)].program.push_back(std::move(instruction));
    }
  }
}

}  // namespace

void assign_ranks(Job* job) {
  const ClusterSpec& cluster = job->inputs.hardware;
  std::set<int> gpus;
  for (const VertexPlan& plan : job->plan.vertices) {
    const auto block = placement_gpus(plan.placement, cluster);
    gpus.insert(block.begin(), block.end());
  }
  for (const int gpu : gpus) {
    job->ranks.push_back({gpu, gpu / cluster.gpus_per_node, gpu % cluster.gpus_per_node, {}});
  }
}

void build_task_graph(Job* job) {
  const Structure& structure = job->plan.structure;
  const auto stages = static_cast<int>(response_parts(structure.cuts, job->inputs.workload).size());
  FusedGraph fused = fuse_graph(build_graph(job->inputs.policy, structure), stages);
  job->graph = std::move(fused.graph);
  job->plan_vertex = std::move(fused.base);
}

void build_programs(Job* job) {
  const std::vector<VertexId> order = program_order(*job);
  const std::vector<DataMessage> messages = MessageFinder(*job, order).find();
  std::map<VertexId, std::vector<const DataMessage*>> incoming;
  std::map<VertexId, std::vector<const DataMessage*>> outgoing;
  for (const DataMessage& message : messages) {
    incoming[message.consumer].push_back(&message);
    outgoing[message.producer].push_back(&message);
  }
  for (const VertexId vertex : order) {
    for (const DataMessage* message : incoming[vertex]) {
      job->ranks[static_cast<std::size_t>(message->to)].program.push_back(
          data_instruction(*job, *message, InstructionKind::kReceive));
    }
    add_weights(job, vertex, InstructionKind::kReceiveWeights);
    add_compute(job, vertex);
    // By edge, then receiver: long runs of equal steps keep run.yaml small.
    std::stable_sort(outgoing[vertex].begin(), outgoing[vertex].end(), [](auto* a, auto* b) {
      return a->tag < b->tag;
    });
    for (const DataMessage* message : outgoing[vertex]) {
      job->ranks[static_cast<std::size_t>(message->from)].program.push_back(
          data_instruction(*job, *message, InstructionKind::kSend));
    }
    add_weights(job, vertex, InstructionKind::kSendWeights);
  }
}

void build_execution(Job* job) {
  assign_ranks(job);
  build_blocks(job);
  build_copies(job);
  build_transfers(job);
  build_programs(job);
}

}  // namespace rpeg
