#include "rpeg/graph/graph.h"

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

constexpr VertexId kNoVertex{-1};

/// The vertices that a job has; kNoVertex for those it lacks.
struct Template {
  VertexId generate = kNoVertex;
  VertexId reward = kNoVertex;
  VertexId value = kNoVertex;
  VertexId reference = kNoVertex;
  VertexId actor = kNoVertex;
  VertexId train_critic = kNoVertex;
  VertexId train_actor = kNoVertex;  ///< of a shared trunk: the joint training
};

VertexId add_vertex(Graph* graph, bool wanted, Vertex vertex) {
  if (!wanted) return kNoVertex;
  graph->vertices.push_back(std::move(vertex));
  return VertexId{static_cast<std::int32_t>(graph->vertices.size()) - 1};
}

/// Adds an edge if the job has both ends.
void connect(Graph* graph, VertexId from, VertexId to, EdgeKind kind, std::int64_t delta) {
  if (from == kNoVertex || to == kNoVertex) return;
  graph->edges.push_back({from, to, kind, delta});
}

Template add_vertices(Graph* graph, const PolicySpec& policy, bool shares) {
  const bool ppo = policy.algorithm == Algorithm::kPpo;
  const bool dpo = policy.algorithm == Algorithm::kDpo;
  const bool generates = !dpo || policy.dpo_mode == DpoMode::kOnline;
  const bool scores = generates && policy.reward == RewardSource::kModel;
  // DPO's loss has no old-policy log-probabilities to recompute.
  const bool recomputes = !dpo && policy.recompute_logprobs;
  Template t;
  t.generate = add_vertex(graph, generates, {"g_pi", Op::kGenerate, ModelRole::kActor});
  t.reward = add_vertex(graph, scores, {"i_R", Op::kInferReward, ModelRole::kReward});
  const ModelRole value_trunk = shares ? ModelRole::kActor : ModelRole::kCritic;
  t.value = add_vertex(graph, ppo, {"i_V", Op::kInferValue, value_trunk});
  t.reference =
      add_vertex(graph, policy.kl_reference, {"i_ref", Op::kInferReference, ModelRole::kReference});
  t.actor = add_vertex(graph, recomputes, {"i_pi", Op::kInferActor, ModelRole::kActor});
  if (shares) {
    t.train_actor = add_vertex(graph, true, {"t_piV", Op::kTrainJoint, ModelRole::kActor});
    return t;
  }
  t.train_critic = add_vertex(graph, ppo, {"t_V", Op::kTrain, ModelRole::kCritic});
  t.train_actor = add_vertex(graph, true, {"t_pi", Op::kTrain, ModelRole::kActor});
  return t;
}

/// Visits `at` along edges of δ = 0; on a cycle returns its text, else "".
std::string find_zero_cycle(const Graph& graph,
                            VertexId at,
                            std::vector<char>* state,
                            std::vector<VertexId>* path) {
  constexpr char kOpen = 1;
  constexpr char kDone = 2;
  if ((*state)[index(at)] == kDone) return "";
  path->push_back(at);
  if ((*state)[index(at)] == kOpen) {
    std::string text;
    auto first = path->begin();
    while (*first != at) ++first;
    for (auto it = first; it != path->end(); ++it) {
      text += (it == first ? "" : " -> ") + graph.vertices[index(*it)].name;
    }
    return text;
  }
  (*state)[index(at)] = kOpen;
  for (const Edge& edge : graph.edges) {
    if (edge.from != at || edge.delta != 0) continue;
    std::string cycle = find_zero_cycle(graph, edge.to, state, path);
    if (!cycle.empty()) return cycle;
  }
  (*state)[index(at)] = kDone;
  path->pop_back();
  return "";
}

}  // namespace

Graph build_graph(const PolicySpec& policy, const Structure& structure) {
  check(!structure.ac_share || policy.algorithm == Algorithm::kPpo,
        "graph: only PPO has a critic that could share the actor's trunk");
  Graph graph;
  const Template t = add_vertices(&graph, policy, structure.ac_share);
  // Rollouts to everything that reads them; inference results to the losses.
  for (const VertexId to :
       {t.reward, t.value, t.reference, t.actor, t.train_critic, t.train_actor}) {
    connect(&graph, t.generate, to, EdgeKind::kData, 0);
  }
  if (policy.algorithm == Algorithm::kDpo) {
    // The rewards choose the pair that the reference scores.
    connect(&graph, t.reward, t.reference, EdgeKind::kData, 0);
  }
  for (const VertexId from : {t.reward, t.value, t.reference}) {
    connect(&graph, from, t.train_critic, EdgeKind::kData, 0);
    connect(&graph, from, t.train_actor, EdgeKind::kData, 0);
  }
  connect(&graph, t.actor, t.train_actor, EdgeKind::kData, 0);
  // Weights: generation may lag by τ; i_pi always runs the weights that training is about to
  // update.
  connect(&graph, t.train_actor, t.generate, EdgeKind::kWeights, 1 + structure.tau_actor);
  connect(&graph, t.train_actor, t.actor, EdgeKind::kWeights, 1);
  if (structure.ac_share) {
    connect(&graph, t.train_actor, t.value, EdgeKind::kWeights, 1 + structure.tau_actor);
  }
  connect(&graph, t.train_critic, t.value, EdgeKind::kWeights, 1 + structure.tau_critic);
  connect(&graph, t.train_critic, t.train_critic, EdgeKind::kState, 1);
  connect(&graph, t.train_actor, t.train_actor, EdgeKind::kState, 1);
  if (t.generate == kNoVertex) {
    // Nothing else would keep an offline reference from running ahead without bound.
    connect(&graph, t.train_actor, t.reference, EdgeKind::kOrder, 2);
  }
  return graph;
}

ResponsePart whole_response(const WorkloadSpec& workload) {
  const auto points = static_cast<std::int32_t>(workload.gen_quantiles.size());
  return {0, points > 0 ? points : 1};
}

std::vector<ResponsePart> response_parts(std::uint32_t cuts, const WorkloadSpec& workload) {
  const ResponsePart whole = whole_response(workload);
  std::vector<ResponsePart> parts;
  std::int32_t first = whole.first;
  for (std::int32_t point = 1; point <= whole.last; ++point) {
    const bool is_cut = point == whole.last || (cuts >> (point - 1) & 1U) != 0;
    if (!is_cut) continue;
    parts.push_back({first, point});
    first = point;
  }
  return parts;
}

std::uint32_t possible_cuts(const WorkloadConfig& config) {
  const PolicySpec& policy = config.policy;
  const bool infers = policy.algorithm == Algorithm::kPpo || policy.kl_reference ||
                      policy.reward == RewardSource::kModel || policy.recompute_logprobs;
  if (!policy.allow_fusion || policy.algorithm == Algorithm::kDpo || !infers) return 0;
  constexpr int kBits = 32;  // of Structure::cuts
  const int points = static_cast<int>(config.workload.gen_quantiles.size()) - 1;
  const int inner = points < kBits ? points : kBits;
  const int kept = inner < kMaxCutPoints ? inner : kMaxCutPoints;
  std::uint32_t cuts = 0;
  for (int i = 0; i < kept; ++i) cuts |= std::uint32_t{1} << (i * inner / kept);
  return cuts;
}

namespace {

/// The inference vertices that read rollouts, and generation itself.
bool is_cut(const Graph& graph, std::size_t vertex) {
  if (graph.vertices[vertex].op == Op::kGenerate) return true;
  if (!is_inference(graph.vertices[vertex].op)) return false;
  for (const Edge& edge : graph.edges) {
    const bool reads = index(edge.to) == vertex && edge.kind == EdgeKind::kData;
    if (reads && graph.vertices[index(edge.from)].op == Op::kGenerate) return true;
  }
  return false;
}

}  // namespace

FusedGraph fuse_graph(const Graph& graph, int stages) {
  FusedGraph fused;
  std::vector<std::int32_t> first;  // of each vertex: its first stage
  std::vector<std::int32_t> count;
  const auto id = [](std::int32_t i) { return VertexId{i}; };
  for (std::size_t v = 0; v < graph.vertices.size(); ++v) {
    first.push_back(static_cast<std::int32_t>(fused.graph.vertices.size()));
    count.push_back(stages > 1 && is_cut(graph, v) ? stages : 1);
    for (std::int32_t s = 1; s <= count[v]; ++s) {
      Vertex stage = graph.vertices[v];
      if (count[v] > 1) {
        stage.name += "." + std::to_string(s);
        stage.stage = s;
        const std::int32_t self = first[v] + s - 1;
        if (s > 1) connect(&fused.graph, id(self - 1), id(self), EdgeKind::kOrder, 0);
      }
      fused.graph.vertices.push_back(std::move(stage));
      fused.base.push_back(static_cast<std::int32_t>(v));
    }
    if (count[v] > 1 && graph.vertices[v].op == Op::kGenerate) {
      connect(&fused.graph, id(first[v] + count[v] - 1), id(first[v]), EdgeKind::kState, 1);
    }
  }
  for (const Edge& edge : graph.edges) {
    const std::size_t from = index(edge.from);
    const std::size_t to = index(edge.to);
    // Data of every stage goes to its chunk, or to the one consumer; all else to the first.
    const std::int32_t copies = edge.kind == EdgeKind::kData ? count[from] : 1;
    const std::int32_t last = edge.kind == EdgeKind::kOrder ? count[from] - 1 : 0;
    for (std::int32_t s = 0; s < copies; ++s) {
      const std::int32_t at = count[to] > 1 ? s : 0;
      connect(&fused.graph, id(first[from] + last + s), id(first[to] + at), edge.kind, edge.delta);
    }
  }
  return fused;
}

void check_graph(const Graph& graph) {
  const auto count = graph.vertices.size();
  for (const Edge& edge : graph.edges) {
    check(index(edge.from) < count && index(edge.to) < count, "graph: an edge has no vertex");
    check(edge.delta >= 0,
          "graph: the edge " + graph.vertices[index(edge.from)].name + " -> " +
              graph.vertices[index(edge.to)].name + " has a negative iteration distance");
  }
  std::vector<char> state(count, 0);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<VertexId> path;
    const std::string cycle =
        find_zero_cycle(graph, VertexId{static_cast<std::int32_t>(i)}, &state, &path);
    check(cycle.empty(), "graph: deadlock, the cycle " + cycle + " has no iteration distance");
  }
}

VertexId find_vertex(const Graph& graph, const std::string& name) {
  for (std::size_t i = 0; i < graph.vertices.size(); ++i) {
    if (graph.vertices[i].name == name) return VertexId{static_cast<std::int32_t>(i)};
  }
  return kNoVertex;
}

const char* to_string(Op op) {
  switch (op) {
    case Op::kGenerate:
      return "generate";
    case Op::kInferReward:
      return "infer_reward";
    case Op::kInferValue:
      return "infer_value";
    case Op::kInferReference:
      return "infer_reference";
    case Op::kInferActor:
      return "infer_actor";
    case Op::kTrain:
      return "train";
    case Op::kTrainJoint:
      return "train_joint";
  }
  throw Error(ErrorKind::kInternal, "graph: unknown op");
}

const char* to_string(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::kData:
      return "data";
    case EdgeKind::kWeights:
      return "weights";
    case EdgeKind::kState:
      return "state";
    case EdgeKind::kOrder:
      return "order";
  }
  throw Error(ErrorKind::kInternal, "graph: unknown edge kind");
}

}  // namespace rpeg
