#include "job/programs.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "job/data_messages.h"
#include "job/layout.h"

namespace rpeg {
namespace {

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

/// Appends instructions to the rank programs.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(Job* job) : job_(*job), positions_(task_positions(*job)) {}

  void build() {
    const std::vector<DataMessage> messages = find_data_messages(job_, iteration_order(positions_));
    std::map<VertexId, std::vector<const DataMessage*>> incoming;
    std::map<VertexId, std::vector<const DataMessage*>> outgoing;
    for (const DataMessage& message : messages) {
      incoming[message.consumer].push_back(&message);
      outgoing[message.producer].push_back(&message);
    }
    for (const VertexId vertex : period_order(positions_)) {
      for (const DataMessage* message : incoming[vertex]) {
        add_data(*message, InstructionKind::kReceive);
      }
      add_weights(vertex, InstructionKind::kReceiveWeights);
      add_compute(vertex);
      // By edge, then receiver: long runs of equal steps keep run.yaml small.
      std::stable_sort(outgoing[vertex].begin(), outgoing[vertex].end(), [](auto* a, auto* b) {
        return a->tag < b->tag;
      });
      for (const DataMessage* message : outgoing[vertex]) {
        add_data(*message, InstructionKind::kSend);
      }
      add_weights(vertex, InstructionKind::kSendWeights);
    }
    for (RankSpec& rank : job_.ranks) {
      lower_shifts(&rank.program);
    }
  }

 private:
  void add(int rank, Instruction instruction) {
    job_.ranks[static_cast<std::size_t>(rank)].program.push_back(std::move(instruction));
  }

  void add_data(const DataMessage& message, InstructionKind kind) {
    const bool sends = kind == InstructionKind::kSend;
    Instruction result;
    result.kind = kind;
    result.vertex = message.producer;
    result.peer = sends ? message.to : message.from;
    result.tag = message.tag;
    result.payload = message.payload;
    result.sequences = message.work.sequences;
    result.slots = message.work.slots;
    result.capacity_bytes = data_capacity_bytes(job_, result);
    // A receive runs for the iteration in which the message was sent.
    result.shift = sends ? positions_[index(message.producer)].shift
                         : positions_[index(message.consumer)].shift + message.delta;
    add(sends ? message.from : message.to, std::move(result));
  }

  /// Sends after the producer, receives before the consumer.
  void add_weights(VertexId vertex, InstructionKind kind) {
    const bool sends = kind == InstructionKind::kSendWeights;
    for (std::size_t t = 0; t < job_.transfers.size(); ++t) {
      const WeightTransfer& transfer = job_.transfers[t];
      if ((sends ? transfer.producer : transfer.consumer) != vertex) {
        continue;
      }
      for (std::size_t m = 0; m < transfer.messages.size(); ++m) {
        const WeightMessage& message = transfer.messages[m];
        Instruction instruction;
        instruction.kind = kind;
        instruction.vertex = transfer.producer;
        instruction.peer = sends ? message.to : message.from;
        instruction.tag = weights_tag(job_.graph, t);
        instruction.capacity_bytes = message.bytes;
        instruction.transfer = static_cast<int>(t);
        instruction.message = static_cast<int>(m);
        instruction.shift = positions_[index(vertex)].shift;
        add(sends ? message.from : message.to, std::move(instruction));
      }
    }
  }

  void add_compute(VertexId vertex) {
    const Block& block = block_of(job_, vertex);
    for (int dp = 0; dp < block.parallelism.dp; ++dp) {
      Instruction instruction;
      instruction.kind = compute_kind(job_.graph.vertices[index(vertex)].op);
      instruction.vertex = vertex;
      ReplicaWork work = replica_work(job_, vertex, dp);
      instruction.sequences = std::move(work.sequences);
      instruction.slots = std::move(work.slots);
      instruction.shift = positions_[index(vertex)].shift;
      for (const int rank : replica_ranks(block, dp)) {
        add(rank, instruction);
      }
    }
  }

  /// A rank's first period is the one in which it has something to do.
  static void lower_shifts(std::vector<Instruction>* program) {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const Instruction& instruction : *program) {
      least = std::min(least, instruction.shift);
    }
    for (Instruction& instruction : *program) {
      instruction.shift -= least;
    }
  }

  Job& job_;
  std::vector<TaskPosition> positions_;  // by vertex
};

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

void build_programs(Job* job) { ProgramBuilder(job).build(); }

void build_execution(Job* job) {
  assign_ranks(job);
  build_blocks(job);
  build_copies(job);
  build_transfers(job);
  build_programs(job);
}

}  // namespace rpeg
