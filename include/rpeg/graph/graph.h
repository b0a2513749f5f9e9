#pragma once

/// Module `graph`: the RPEG of one iteration: model operations as vertices; data, weights, state
/// and order as edges, each with an iteration distance δ. Plain data, and pure functions that build
/// it.

#include <cstdint>
#include <string>
#include <vector>

#include "rpeg/spec/workload_config.h"

namespace rpeg {

enum class VertexId : std::int32_t {};
inline std::size_t index(VertexId id) { return static_cast<std::size_t>(id); }

/// kTrainJoint trains a trunk that actor and critic share, with both heads.
enum class Op {
  kGenerate,
  kInferReward,
  kInferValue,
  kInferReference,
  kInferActor,
  kTrain,
  kTrainJoint
};
inline bool is_training(Op op) { return op == Op::kTrain || op == Op::kTrainJoint; }
inline bool is_inference(Op op) { return op != Op::kGenerate && !is_training(op); }

/// One operation of the template, or one stage of it when generation is cut (see `fuse_graph`).
struct Vertex {
  std::string name;  ///< g_pi, i_R, i_V, i_ref, i_pi, t_V, t_pi, t_piV; of a stage "g_pi.2"
  Op op = Op::kGenerate;
  ModelRole model = ModelRole::kActor;  ///< whose trunk; of a shared trunk the actor's
  std::int32_t stage = 0;               ///< 1 … S of a cut vertex; 0: whole
  bool operator==(const Vertex&) const = default;
};

enum class EdgeKind { kData, kWeights, kState, kOrder };

/// `to` in iteration k + delta waits for `from` in iteration k.
struct Edge {
  VertexId from{};
  VertexId to{};
  EdgeKind kind = EdgeKind::kData;
  std::int64_t delta = 0;
  bool operator==(const Edge&) const = default;
};

struct Graph {
  std::vector<Vertex> vertices;
  std::vector<Edge> edges;
  bool operator==(const Graph&) const = default;
};

/// Choices that change the graph itself. `tau` is the staleness budget in iterations.
struct Structure {
  std::int64_t tau_actor = 0;
  std::int64_t tau_critic = 0;  ///< with `ac_share` equal to tau_actor
  bool ac_share = false;        ///< actor and critic share one trunk; PPO only
  std::uint32_t cuts = 0;       ///< bit i: generation is cut at workload.gen_quantiles[i]
  auto operator<=>(const Structure&) const = default;
};

/// Builds the graph of an algorithm, generation uncut: its vertices are what a plan decides for.
/// Vertices appear in the order g_pi, i_R, i_V, i_ref, i_pi, t_V, t_pi, those that the job needs;
/// with a shared trunk t_piV stands for t_V and t_pi. With a verifier there is no i_R, without a
/// reference no i_ref.
Graph build_graph(const PolicySpec& policy, const Structure& structure);

/// The responses that end between two points of the length distribution. Boundary 0 is (0, 0),
/// boundary i is workload.gen_quantiles[i − 1] (without gen_quantiles boundary 1 is the end).
struct ResponsePart {
  std::int32_t first = 0;
  std::int32_t last = 1;
  auto operator<=>(const ResponsePart&) const = default;
};
ResponsePart whole_response(const WorkloadSpec& workload);
/// The parts between neighbouring cuts, ascending; one part without cuts.
std::vector<ResponsePart> response_parts(std::uint32_t cuts, const WorkloadSpec& workload);

/// Most points at which generation may be cut.
inline constexpr int kMaxCutPoints = 10;
/// The cuts that a plan may have, as in Structure::cuts: inner points of gen_quantiles (evenly
/// thinned to kMaxCutPoints). None when policy.allow_fusion is false, for DPO (a pair needs all
/// samples of its prompt), and when no inference reads the rollouts.
std::uint32_t possible_cuts(const WorkloadConfig& config);

/// A graph in which cut vertices are chains of stages.
struct FusedGraph {
  Graph graph;
  std::vector<std::int32_t> base;  ///< per vertex: its vertex in the uncut graph
};
/// Cuts generation into `stages` ≥ 1 stages g_pi.1 … g_pi.S on the same GPUs, and every inference
/// vertex that reads rollouts into as many chunks. Stage s feeds chunk s; stages and chunks follow
/// one another (order edges); g_pi.1 of the next iteration waits for g_pi.S (state). Weights go to
/// the first stage or chunk. stages = 1: the graph as it is.
FusedGraph fuse_graph(const Graph& graph, int stages);

/// Throws kInternal naming the cycle when a cycle of total δ = 0 exists (the graph would deadlock).
void check_graph(const Graph& graph);

/// The vertex of a name, or -1 as an id.
VertexId find_vertex(const Graph& graph, const std::string& name);

const char* to_string(Op op);
const char* to_string(EdgeKind kind);

}  // namespace rpeg
