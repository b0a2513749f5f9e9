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

enum class Op { kGenerate, kInferReward, kInferValue, kInferReference, kInferActor, kTrain };

/// One operation of the template.
struct Vertex {
  std::string name;  ///< g_pi, i_R, i_V, i_ref, i_pi, t_V, t_pi
  Op op = Op::kGenerate;
  ModelRole model = ModelRole::kActor;
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
  std::int64_t tau_critic = 0;
  bool operator==(const Structure&) const = default;
};

/// Builds the graph of an algorithm. Vertices appear in the order g_pi, i_R, i_V, i_ref, i_pi, t_V,
/// t_pi, those that the job needs. With a verifier there is no i_R, without a reference no i_ref.
Graph build_graph(const PolicySpec& policy, const Structure& structure);

/// Throws kInternal naming the cycle when a cycle of total δ = 0 exists (the graph would deadlock).
void check_graph(const Graph& graph);

/// The vertex of a name, or -1 as an id.
VertexId find_vertex(const Graph& graph, const std::string& name);

const char* to_string(Op op);
const char* to_string(EdgeKind kind);

}  // namespace rpeg
