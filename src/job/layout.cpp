#include "job/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

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

void check_order(const Graph& graph, const std::vector<VertexId>& order) {
  std::vector<std::size_t> position(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    position[index(order[i])] = i;
  }
  for (const Edge& edge : graph.edges) {
    if (edge.delta == 0 && position[index(edge.from)] >= position[index(edge.to)]) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("the plan's schedule runs {} before {}, whose result it needs in the "
                              "same iteration",
                              graph.vertices[index(edge.to)].name,
                              graph.vertices[index(edge.from)].name));
    }
  }
}

}  // namespace

std::vector<Payload> produced_payloads(const Vertex& vertex) {
  switch (vertex.op) {
    case Op::kGenerate:
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

std::vector<Payload> edge_payloads(const Graph& graph, const Edge& edge) {
  if (edge.kind != EdgeKind::kData) {
    return {};
  }
  std::vector<Payload> payloads = produced_payloads(graph.vertices[index(edge.from)]);
  // Only the losses read the scores of the verifier.
  if (payloads.size() > 1 && !is_training(graph.vertices[index(edge.to)].op)) {
    payloads.pop_back();
  }
  return payloads;
}

std::vector<SequenceRange> replica_work(const Job& job, VertexId vertex, int replica) {
  return owned_sequences(job.graph.vertices[index(vertex)].op,
                         job.inputs.workload.sequences(),
                         job.config.train.minibatches,
                         plan_of(job, vertex).parallelism.dp,
                         replica);
}

std::vector<VertexId> program_order(const Job& job) {
  std::vector<std::tuple<std::int64_t, std::int64_t, VertexId>> keys;
  for (std::size_t i = 0; i < job.graph.vertices.size(); ++i) {
    const VertexId vertex{static_cast<std::int32_t>(i)};
    if (job.schedule.empty()) {  // a plan written by hand: the order of the template
      keys.emplace_back(0, i, vertex);
      continue;
    }
    const ScheduleEntry& entry = schedule_entry(job, job.graph.vertices[i].name);
    keys.emplace_back(entry.shift, entry.order, vertex);
  }
  std::sort(keys.begin(), keys.end());
  std::vector<VertexId> order;
  order.reserve(keys.size());
  for (const auto& key : keys) {
    order.push_back(std::get<VertexId>(key));
  }
  check_order(job.graph, order);
  return order;
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
