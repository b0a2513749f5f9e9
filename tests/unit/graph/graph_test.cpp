#include "rpeg/graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

/// "g_pi->t_pi data 0" for every edge.
std::vector<std::string> edge_texts(const Graph& graph) {
  std::vector<std::string> texts;
  for (const Edge& edge : graph.edges) {
    texts.push_back(graph.vertices[index(edge.from)].name + "->" +
                    graph.vertices[index(edge.to)].name + " " + to_string(edge.kind) + " " +
                    std::to_string(edge.delta));
  }
  return texts;
}

std::vector<std::string> vertex_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Vertex& vertex : graph.vertices) names.push_back(vertex.name);
  return names;
}

TEST(BuildGraph, PpoHasSixVerticesAndTheEdgesOfTheTable) {
  PolicySpec policy;
  policy.algorithm = Algorithm::kPpo;
  const Graph graph = build_graph(policy, {.tau_actor = 1, .tau_critic = 2});
  EXPECT_THAT(vertex_names(graph), ElementsAre("g_pi", "i_R", "i_V", "i_ref", "t_V", "t_pi"));
  EXPECT_THAT(edge_texts(graph),
              UnorderedElementsAre("g_pi->i_R data 0",
                                   "g_pi->i_V data 0",
                                   "g_pi->i_ref data 0",
                                   "g_pi->t_V data 0",
                                   "g_pi->t_pi data 0",
                                   "i_R->t_V data 0",
                                   "i_R->t_pi data 0",
                                   "i_V->t_V data 0",
                                   "i_V->t_pi data 0",
                                   "i_ref->t_V data 0",
                                   "i_ref->t_pi data 0",
                                   "t_pi->g_pi weights 2",
                                   "t_V->i_V weights 3",
                                   "t_V->t_V state 1",
                                   "t_pi->t_pi state 1"));
  check_graph(graph);
}

TEST(BuildGraph, GrpoHasNoCritic) {
  PolicySpec policy;
  policy.algorithm = Algorithm::kGrpo;
  const Graph graph = build_graph(policy, {});
  EXPECT_THAT(vertex_names(graph), ElementsAre("g_pi", "i_R", "i_ref", "t_pi"));
  EXPECT_THAT(edge_texts(graph),
              UnorderedElementsAre("g_pi->i_R data 0",
                                   "g_pi->i_ref data 0",
                                   "g_pi->t_pi data 0",
                                   "i_R->t_pi data 0",
                                   "i_ref->t_pi data 0",
                                   "t_pi->g_pi weights 1",
                                   "t_pi->t_pi state 1"));
  check_graph(graph);
}

TEST(BuildGraph, AVerifierAndNoReferenceLeaveGenerationAndTraining) {
  PolicySpec policy;
  policy.algorithm = Algorithm::kGrpo;
  policy.reward = RewardSource::kVerifier;
  policy.kl_reference = false;
  const Graph graph = build_graph(policy, {});
  EXPECT_THAT(vertex_names(graph), ElementsAre("g_pi", "t_pi"));
  EXPECT_THAT(
      edge_texts(graph),
      UnorderedElementsAre("g_pi->t_pi data 0", "t_pi->g_pi weights 1", "t_pi->t_pi state 1"));
}

TEST(BuildGraph, RecomputedLogprobsUseTheNewestWeightsWhateverTau) {
  PolicySpec policy;
  policy.algorithm = Algorithm::kGrpo;
  policy.reward = RewardSource::kVerifier;
  policy.kl_reference = false;
  policy.recompute_logprobs = true;
  const Graph graph = build_graph(policy, {.tau_actor = 3});
  EXPECT_THAT(vertex_names(graph), ElementsAre("g_pi", "i_pi", "t_pi"));
  EXPECT_THAT(edge_texts(graph),
              UnorderedElementsAre("g_pi->i_pi data 0",
                                   "g_pi->t_pi data 0",
                                   "i_pi->t_pi data 0",
                                   "t_pi->g_pi weights 4",
                                   "t_pi->i_pi weights 1",
                                   "t_pi->t_pi state 1"));
  check_graph(graph);
}

TEST(BuildGraph, OfflineDpoBoundsTheReferenceByAnOrderEdge) {
  PolicySpec policy;
  policy.algorithm = Algorithm::kDpo;
  const Graph graph = build_graph(policy, {});
  EXPECT_THAT(vertex_names(graph), ElementsAre("i_ref", "t_pi"));
  EXPECT_THAT(
      edge_texts(graph),
      UnorderedElementsAre("i_ref->t_pi data 0", "t_pi->i_ref order 2", "t_pi->t_pi state 1"));
  check_graph(graph);
}

TEST(BuildGraph, OnlineDpoScoresThePairThatTheRewardsChose) {
  PolicySpec policy;
  policy.algorithm = Algorithm::kDpo;
  policy.dpo_mode = DpoMode::kOnline;
  const Graph graph = build_graph(policy, {.tau_actor = 1});
  EXPECT_THAT(vertex_names(graph), ElementsAre("g_pi", "i_R", "i_ref", "t_pi"));
  EXPECT_THAT(edge_texts(graph),
              UnorderedElementsAre("g_pi->i_R data 0",
                                   "g_pi->i_ref data 0",
                                   "g_pi->t_pi data 0",
                                   "i_R->i_ref data 0",
                                   "i_R->t_pi data 0",
                                   "i_ref->t_pi data 0",
                                   "t_pi->g_pi weights 2",
                                   "t_pi->t_pi state 1"));
  check_graph(graph);
}

TEST(CheckGraph, NamesACycleWithoutDistance) {
  Graph graph;
  graph.vertices = {{"a", Op::kGenerate, ModelRole::kActor},
                    {"b", Op::kTrain, ModelRole::kActor},
                    {"c", Op::kTrain, ModelRole::kCritic}};
  graph.edges = {{VertexId{0}, VertexId{1}, EdgeKind::kData, 0},
                 {VertexId{1}, VertexId{2}, EdgeKind::kData, 0},
                 {VertexId{2}, VertexId{1}, EdgeKind::kWeights, 0}};
  try {
    check_graph(graph);
    FAIL() << "the cycle b -> c -> b was not found";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInternal);
    EXPECT_THAT(error.message(), testing::HasSubstr("b -> c -> b"));
  }
  graph.edges[2].delta = 1;
  check_graph(graph);
}

TEST(CheckGraph, RefusesAnEdgeWithoutAVertex) {
  Graph graph;
  graph.vertices = {{"a", Op::kGenerate, ModelRole::kActor}};
  graph.edges = {{VertexId{0}, VertexId{1}, EdgeKind::kData, 0}};
  EXPECT_THROW(check_graph(graph), Error);
}

TEST(FindVertex, ReturnsMinusOneForAnUnknownName) {
  PolicySpec policy;
  policy.algorithm = Algorithm::kGrpo;
  const Graph graph = build_graph(policy, {});
  EXPECT_EQ(find_vertex(graph, "t_pi"), VertexId{3});
  EXPECT_EQ(find_vertex(graph, "t_V"), VertexId{-1});
}

}  // namespace
}  // namespace rpeg
