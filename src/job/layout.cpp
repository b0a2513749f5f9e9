#include "job/layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

constexpr int kPayloads = 5;

const ScheduleEntry& schedule_entry(const Job& job, const std::string& vertex) {
  for (const ScheduleEntry& entry : job.schedule) {
    if (entry.id == vertex) {
      return entry;
    }
  }
  throw Error(ErrorKind::kUsage,
              fmt::format("the plan's schedule has no entry for {}; price the plan again with "
                          "rpeg-optimize --evaluate",
                          vertex));
}

/// u of iteration k must stand before v of iteration k + delta for every edge u -> v.
void check_positions(const Graph& graph, const std::vector<TaskPosition>& positions) {
  for (const Edge& edge : graph.edges) {
    const TaskPosition& from = positions[index(edge.from)];
    const TaskPosition& to = positions[index(edge.to)];
    if (from < TaskPosition{to.shift + edge.delta, to.order}) {
      continue;
    }
    const std::string& from_name = graph.vertices[index(edge.from)].name;
    const std::string& to_name = graph.vertices[index(edge.to)].name;
    throw Error(
        ErrorKind::kUsage,
        fmt::format("the plan's schedule runs {} (order {}, shift {}) before {} (order {}, shift "
                    "{}), whose {} it needs {}; price the plan again with rpeg-optimize --evaluate",
                    to_name,
                    to.order,
                    to.shift,
                    from_name,
                    from.order,
                    from.shift,
                    edge.kind == EdgeKind::kWeights ? "weights" : "result",
                    edge.delta == 0 ? std::string("in the same iteration")
                                    : fmt::format("{} iterations later", edge.delta)));
  }
}

bool has_vertex(const Graph& graph, Op op) {
  return std::any_of(graph.vertices.begin(), graph.vertices.end(), [&](const Vertex& vertex) {
    return vertex.op == op;
  });
}

template <typename Key>
std::vector<VertexId> sorted_vertices(const std::vector<TaskPosition>& positions, Key key) {
  std::vector<VertexId> order;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    order.push_back(VertexId{static_cast<std::int32_t>(i)});
  }
  std::ranges::stable_sort(order, {}, key);
  return order;
}

}  // namespace

std::vector<Payload> produced_payloads(const Graph& graph, VertexId vertex) {
  switch (graph.vertices[index(vertex)].op) {
    case Op::kGenerate:
      if (has_vertex(graph, Op::kInferReward)) {
        return {Payload::kRollout};
      }
      return {Payload::kRollout, Payload::kScore};
    case Op::kInferReward:
      return {Payload::kScore};
    case Op::kInferValue:
      return {Payload::kValues};
    case Op::kInferReference:
      return {Payload::kRefLogprobs};
    case Op::kInferActor:
      return {Payload::kActorLogprobs};
    case Op::kTrain:
    case Op::kTrainJoint:
      return {};
  }
  return {};
}

std::vector<Payload> edge_payloads(const Job& job, const Edge& edge) {
  if (edge.kind != EdgeKind::kData) {
    return {};
  }
  std::vector<Payload> payloads = produced_payloads(job.graph, edge.from);
  const Op reader = job.graph.vertices[index(edge.to)].op;
  const bool ranks_samples =
      reader == Op::kInferReference && job.inputs.policy.algorithm == Algorithm::kDpo;
  if (payloads.size() > 1 && !is_training(reader) && !ranks_samples) {
    payloads.pop_back();
  }
  return payloads;
}

bool keeps_order(const Edge& edge) { return edge.kind == EdgeKind::kOrder && edge.delta > 0; }

ReplicaWork replica_work(const Job& job, VertexId vertex, int replica) {
  const Vertex& what = job.graph.vertices[index(vertex)];
  const VertexPlan& plan = plan_of(job, vertex);
  const std::int64_t sequences = job_sequences(job.inputs);
  const auto owned = [&] {
    return owned_sequences(what.op,
                           sequences,
                           job.config.train.minibatches,
                           plan.parallelism.dp,
                           replica,
                           unit_sequences(what, job.inputs));
  };
  if (what.stage == 0) {
    return {owned(), {}};
  }
  const std::uint32_t cuts = job.plan.structure.cuts;
  if (what.op == Op::kGenerate) {
    const SequenceRange slots =
        stage_slots(job.inputs, cuts, what.stage, plan.parallelism.dp, replica);
    return {owned(), slots.first < slots.last ? SequenceList{slots} : SequenceList{}};
  }
  const VertexId generation = find_vertex(job.graph, fmt::format("g_pi.{}", what.stage));
  const int replicas = plan_of(job, generation).parallelism.dp;
  const std::int64_t all = stage_slots(job.inputs, cuts, what.stage, replicas, replicas - 1).last;
  const auto [first, last] = replica_sequences(all, plan.parallelism.dp, replica);
  return {{}, first < last ? SequenceList{{first, last}} : SequenceList{}};
}

std::vector<TaskPosition> task_positions(const Job& job) {
  std::vector<TaskPosition> positions;
  for (std::size_t i = 0; i < job.graph.vertices.size(); ++i) {
    if (job.schedule.empty()) {  // a plan written by hand: the order of the template
      positions.push_back({0, static_cast<std::int64_t>(i)});
      continue;
    }
    const ScheduleEntry& entry = schedule_entry(job, job.graph.vertices[i].name);
    positions.push_back({entry.shift, entry.order});
  }
  check_positions(job.graph, positions);
  return positions;
}

std::vector<VertexId> period_order(const std::vector<TaskPosition>& positions) {
  return sorted_vertices(positions,
                         [&](VertexId vertex) { return positions[index(vertex)].order; });
}

std::vector<VertexId> iteration_order(const std::vector<TaskPosition>& positions) {
  return sorted_vertices(positions, [&](VertexId vertex) { return positions[index(vertex)]; });
}

int data_tag(std::size_t edge, Payload payload) {
  return static_cast<int>(edge) * kPayloads + static_cast<int>(payload);
}

int weights_tag(const Graph& graph, std::size_t transfer) {
  return static_cast<int>(graph.edges.size()) * kPayloads + static_cast<int>(transfer);
}

const char* to_string(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::kGenerate:
      return "generate";
    case InstructionKind::kInfer:
      return "infer";
    case InstructionKind::kTrain:
      return "train";
    case InstructionKind::kSend:
      return "send";
    case InstructionKind::kReceive:
      return "receive";
    case InstructionKind::kSendWeights:
      return "send_weights";
    case InstructionKind::kReceiveWeights:
      return "receive_weights";
  }
  return "";
}

const char* to_string(Payload payload) {
  switch (payload) {
    case Payload::kRollout:
      return "rollout";
    case Payload::kScore:
      return "score";
    case Payload::kValues:
      return "values";
    case Payload::kRefLogprobs:
      return "ref_logprobs";
    case Payload::kActorLogprobs:
      return "actor_logprobs";
  }
  return "";
}

}  // namespace rpeg
