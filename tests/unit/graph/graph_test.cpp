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

TEST(BuildGraph, ASharedTrunkIsTrainedOnceAndReadByTheCritic) {
  PolicySpec policy;
  policy.algorithm = Algorithm::kPpo;
  policy.reward = RewardSource::kVerifier;
  policy.kl_reference = false;
  const Graph graph =
      build_graph(policy, {.tau_actor = 1, .tau_critic = 1, .ac_share = true, .cuts = 0});
  EXPECT_THAT(vertex_names(graph), ElementsAre("g_pi", "i_V", "t_piV"));
  EXPECT_THAT(edge_texts(graph),
              UnorderedElementsAre("g_pi->i_V data 0",
                                   "g_pi->t_piV data 0",
                                   "i_V->t_piV data 0",
                                   "t_piV->g_pi weights 2",
                                   "t_piV->i_V weights 2",
                                   "t_piV->t_piV state 1"));
  EXPECT_EQ(graph.vertices[1].model, ModelRole::kActor);
  check_graph(graph);
}

TEST(FuseGraph, StagesFeedTheirChunksAndTrainingWaitsForTheLast) {
  PolicySpec policy;
  policy.algorithm = Algorithm::kPpo;
  policy.reward = RewardSource::kVerifier;
  policy.kl_reference = false;
  const FusedGraph fused = fuse_graph(build_graph(policy, {.tau_actor = 1}), 2);
  EXPECT_THAT(vertex_names(fused.graph),
              ElementsAre("g_pi.1", "g_pi.2", "i_V.1", "i_V.2", "t_V", "t_pi"));
  EXPECT_THAT(fused.base, ElementsAre(0, 0, 1, 1, 2, 3));
  EXPECT_THAT(edge_texts(fused.graph),
              UnorderedElementsAre("g_pi.1->g_pi.2 order 0",
                                   "g_pi.2->g_pi.1 state 1",
                                   "i_V.1->i_V.2 order 0",
                                   "g_pi.1->i_V.1 data 0",
                                   "g_pi.2->i_V.2 data 0",
                                   "g_pi.1->t_V data 0",
                                   "g_pi.2->t_V data 0",
                                   "g_pi.1->t_pi data 0",
                                   "g_pi.2->t_pi data 0",
                                   "i_V.1->t_V data 0",
                                   "i_V.2->t_V data 0",
                                   "i_V.1->t_pi data 0",
                                   "i_V.2->t_pi data 0",
                                   "t_pi->g_pi.1 weights 2",
                                   "t_V->i_V.1 weights 1",
                                   "t_V->t_V state 1",
                                   "t_pi->t_pi state 1"));
  EXPECT_EQ(fused.graph.vertices[1].stage, 2);
  EXPECT_EQ(fused.graph.vertices[5].stage, 0);
  check_graph(fused.graph);
}

TEST(FuseGraph, OneStageIsTheGraphItself) {
  PolicySpec policy;
  policy.algorithm = Algorithm::kPpo;
  const Graph graph = build_graph(policy, {});
  const FusedGraph fused = fuse_graph(graph, 1);
  EXPECT_EQ(fused.graph, graph);
}

/// Inner points at 0.1, 0.2, … of a job that has a reference to overlap with.
WorkloadConfig config_with_inner_points(int points) {
  WorkloadConfig config;
  config.policy.algorithm = Algorithm::kGrpo;
  config.policy.reward = RewardSource::kVerifier;
  for (int i = 1; i <= points + 1; ++i) {
    config.workload.gen_quantiles.push_back({i / (points + 1.0), 10.0 * i});
  }
  return config;
}

TEST(PossibleCuts, AreTheInnerPoints) {
  EXPECT_EQ(possible_cuts(config_with_inner_points(3)), 0b111U);
  EXPECT_EQ(possible_cuts(config_with_inner_points(0)), 0U);
  EXPECT_EQ(possible_cuts(WorkloadConfig{}), 0U);  // no distribution
}

TEST(PossibleCuts, AreThinnedEvenlyWhenThereAreMany) {
  const std::uint32_t cuts = possible_cuts(config_with_inner_points(20));
  EXPECT_EQ(cuts, 0b01010101010101010101U);
}

TEST(PossibleCuts, NeedFusionAndSomethingToOverlapWith) {
  WorkloadConfig config = config_with_inner_points(3);
  config.policy.kl_reference = false;
  EXPECT_EQ(possible_cuts(config), 0U);
  config.policy.recompute_logprobs = true;
  EXPECT_EQ(possible_cuts(config), 0b111U);
  config.policy.allow_fusion = false;
  EXPECT_EQ(possible_cuts(config), 0U);
  config.policy.allow_fusion = true;
  config.policy.algorithm = Algorithm::kDpo;  // a pair is known when all samples have ended
  EXPECT_EQ(possible_cuts(config), 0U);
}

TEST(ResponseParts, LieBetweenTheCuts) {
  const WorkloadConfig config = config_with_inner_points(3);
  EXPECT_THAT(response_parts(0, config.workload), ElementsAre(ResponsePart{0, 4}));
  EXPECT_THAT(response_parts(0b101, config.workload),
              ElementsAre(ResponsePart{0, 1}, ResponsePart{1, 3}, ResponsePart{3, 4}));
  EXPECT_EQ(whole_response(config.workload), (ResponsePart{0, 4}));
  EXPECT_THAT(response_parts(0, WorkloadSpec{}), ElementsAre(ResponsePart{0, 1}));
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
