#include "rpeg/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rpeg/base/error.h"
#include "rpeg/plan/cells.h"

namespace rpeg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ClusterSpec cluster_of(int racks, int nodes_per_rack, int gpus_per_node) {
  ClusterSpec cluster;
  cluster.racks = racks;
  cluster.nodes_per_rack = nodes_per_rack;
  cluster.gpus_per_node = gpus_per_node;
  return cluster;
}

/// Two racks of four nodes of four GPUs; a GQA model: 8 query heads, 2 KV heads, 6 layers.
WorkloadConfig example_config() {
  WorkloadConfig config;
  config.hardware = cluster_of(2, 4, 4);
  ModelSpec model;
  model.layers = 6;
  model.hidden_dim = 64;
  model.ffn_dim = 96;
  model.vocab_size = 100;
  model.head_dim = 8;
  model.num_heads = 8;
  model.num_kv_heads = 2;
  config.models.fill(model);
  config.workload.batch_size = 16;
  config.workload.samples_per_prompt = 2;
  config.workload.context_length = 8;
  config.workload.generation_length = 8;
  config.policy.algorithm = Algorithm::kGrpo;
  config.policy.reward = RewardSource::kVerifier;
  config.policy.kl_reference = false;
  return config;
}

VertexPlan one_gpu() { return {{1, 1, 1}, 1, {{0, 0}, {0, 0}, {0, 0}}}; }

/// Violations when t_pi has `plan` and g_pi a single GPU.
std::vector<std::string> messages(const WorkloadConfig& config, const VertexPlan& plan) {
  const Graph graph = build_graph(config.policy, {});
  std::vector<std::string> texts;
  for (const Violation& v : find_violations({{}, {one_gpu(), plan}}, graph, config)) {
    EXPECT_EQ(v.vertex, "t_pi");
    texts.push_back(v.message);
  }
  return texts;
}

TEST(Placement, TextRoundTrips) {
  const std::vector<Placement> placements = {
      {{0, 0}, {0, 3}, {0, 3}}, {{1, 1}, {2, 2}, {3, 3}}, {{0, 11}, {4, 70}, {0, 7}}};
  EXPECT_EQ(placement_text(placements[0]), "r0 n[0-3] g[0-3]");
  EXPECT_EQ(placement_text(placements[1]), "r1 n[2-2] g[3-3]");
  EXPECT_EQ(placement_text(placements[2]), "r[0-11] n[4-70] g[0-7]");
  for (const Placement& placement : placements) {
    EXPECT_EQ(parse_placement(placement_text(placement)), placement);
  }
  EXPECT_EQ(parse_placement("r[0-0] n2 g3"), (Placement{{0, 0}, {2, 2}, {3, 3}}));
}

TEST(Placement, RefusesWhatIsNotInTheGrammar) {
  for (const char* text : {"",
                           "r0",
                           "r0 n0",
                           "r0 n0 g",
                           "r0 n0 g0 ",
                           "r-1 n0 g0",
                           "r0 n[0] g0",
                           "r0 n[3-1] g0",
                           "r0  n0 g0",
                           "r99999999999 n0 g0",
                           "r0 n[0-3 g0"}) {
    try {
      parse_placement(text);
      ADD_FAILURE() << "accepted `" << text << "`";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_THAT(error.message(), HasSubstr("expected"));
    }
  }
}

TEST(Placement, ListsGpusRackByRack) {
  const ClusterSpec cluster = cluster_of(2, 3, 4);
  // (rack * 3 + node) * 4 + gpu for racks 0-1, node 2, GPUs 1-2.
  EXPECT_THAT(placement_gpus({{0, 1}, {2, 2}, {1, 2}}, cluster), ElementsAre(9, 10, 21, 22));
}

TEST(Parts, AreEvenAndTheFirstOnesLarger) {
  // 10 over 4: 3, 3, 2, 2.
  EXPECT_EQ(stage_layers(10, 4, 0), (std::pair<std::int64_t, std::int64_t>{0, 3}));
  EXPECT_EQ(stage_layers(10, 4, 1), (std::pair<std::int64_t, std::int64_t>{3, 6}));
  EXPECT_EQ(stage_layers(10, 4, 2), (std::pair<std::int64_t, std::int64_t>{6, 8}));
  EXPECT_EQ(stage_layers(10, 4, 3), (std::pair<std::int64_t, std::int64_t>{8, 10}));
  for (int parts = 1; parts <= 7; ++parts) {
    std::int64_t next = 0;
    for (int i = 0; i < parts; ++i) {
      const auto [first, last] = replica_sequences(23, parts, i);
      EXPECT_EQ(first, next);
      EXPECT_GE(last - first, 23 / parts);
      EXPECT_LE(last - first, 23 / parts + 1);
      next = last;
    }
    EXPECT_EQ(next, 23);
  }
}

TEST(FindViolations, AcceptsAValidPlan) {
  // dp 2, pp 2, tp 4 on 16 GPUs: tp 4 is a multiple of the 2 KV heads.
  const VertexPlan plan{{2, 2, 4}, 8, {{0, 0}, {0, 3}, {0, 3}}};
  EXPECT_THAT(messages(example_config(), plan), ElementsAre());
}

TEST(FindViolations, NamesEachRuleWithItsNumbers) {
  const WorkloadConfig config = example_config();
  // The block: outside the cluster, and a product that differs from its size.
  EXPECT_THAT(messages(config, {{1, 1, 1}, 1, {{2, 2}, {0, 0}, {0, 0}}}),
              ElementsAre(HasSubstr("racks [2-2]")));
  EXPECT_THAT(messages(config, {{1, 1, 1}, 1, {{0, 0}, {4, 4}, {3, 4}}}),
              ElementsAre(HasSubstr("nodes [4-4]"), HasSubstr("gpus [3-4]")));
  EXPECT_THAT(messages(config, {{1, 1, 1}, 1, {{0, 0}, {1, 0}, {0, 0}}}),
              ElementsAre(HasSubstr("nodes [1-0]")));
  EXPECT_THAT(
      messages(config, {{2, 1, 1}, 1, {{0, 0}, {0, 0}, {0, 0}}}),
      ElementsAre("dp * pp * tp = 2 * 1 * 1 = 2, but the block r0 n[0-0] g[0-0] has 1 GPUs"));
  // 8 query heads, 2 KV heads, ffn 96, 4 GPUs per node.
  EXPECT_THAT(messages(config, {{1, 1, 8}, 1, {{0, 0}, {0, 1}, {0, 3}}}),
              ElementsAre("tp = 8 exceeds gpus_per_node = 4"));
  EXPECT_THAT(messages(config, {{1, 1, 3}, 1, {{0, 0}, {0, 0}, {0, 2}}}),
              ElementsAre("tp = 3 does not divide the 8 query heads",
                          "tp = 3 neither divides nor is a multiple of the 2 KV heads"));
  EXPECT_THAT(messages(config, {{1, 8, 1}, 1, {{0, 0}, {0, 1}, {0, 3}}}),
              ElementsAre("pp = 8 exceeds the 6 layers"));
  // 32 sequences.
  EXPECT_THAT(
      messages(config, {{4, 1, 1}, 9, {{0, 0}, {0, 0}, {0, 3}}}),
      ElementsAre("micro_batches = 9 exceeds the 8 sequences of the smallest replica's batch"));
  EXPECT_THAT(messages(config, {{1, 1, 1}, 0, {{0, 0}, {0, 0}, {0, 0}}}),
              ElementsAre(HasSubstr("at least 1")));
}

TEST(FindViolations, ChecksFfnLimitsAndReplicasOfTheWorkload) {
  WorkloadConfig config = example_config();
  config.models[0]->ffn_dim = 97;
  EXPECT_THAT(messages(config, {{1, 1, 2}, 1, {{0, 0}, {0, 0}, {0, 1}}}),
              ElementsAre("tp = 2 does not divide ffn_dim = 97"));
  config = example_config();
  config.optimizer.max_tp = 1;
  config.optimizer.max_pp = 1;
  EXPECT_THAT(
      messages(config, {{1, 2, 2}, 1, {{0, 0}, {0, 0}, {0, 3}}}),
      ElementsAre("tp = 2 exceeds optimizer.max_tp = 1", "pp = 2 exceeds optimizer.max_pp = 1"));
  config = example_config();
  config.workload.batch_size = 3;
  config.workload.samples_per_prompt = 1;
  EXPECT_THAT(messages(config, {{4, 1, 1}, 1, {{0, 0}, {0, 0}, {0, 3}}}),
              ElementsAre("dp = 4 exceeds the 3 sequences of the batch"));
}

TEST(FindViolations, CountsMicroBatchesPerMiniBatchOfTraining) {
  WorkloadConfig config = example_config();
  config.policy.minibatches = 4;  // 32 / 4 = 8 sequences a mini-batch, 4 a replica at dp 2
  EXPECT_THAT(messages(config, {{2, 1, 1}, 4, {{0, 0}, {0, 0}, {0, 1}}}), ElementsAre());
  EXPECT_THAT(messages(config, {{2, 1, 1}, 5, {{0, 0}, {0, 0}, {0, 1}}}),
              ElementsAre(HasSubstr("exceeds the 4 sequences")));
}

TEST(FindViolations, DpoSplitsPairs) {
  WorkloadConfig config = example_config();
  config.policy.algorithm = Algorithm::kDpo;
  config.policy.kl_reference = true;
  config.workload.samples_per_prompt = 1;
  const Graph graph = build_graph(config.policy, {});  // i_ref, t_pi
  EXPECT_EQ(batch_units(graph.vertices[1], config), 16);
  EXPECT_EQ(sequences_per_unit(graph.vertices[1], config), 2);
  const VertexPlan plan{{1, 1, 1}, 17, {{0, 0}, {0, 0}, {0, 0}}};
  const auto violations = find_violations({{}, {one_gpu(), plan}}, graph, config);
  ASSERT_EQ(violations.size(), 1U);
  EXPECT_THAT(violations[0].message, HasSubstr("exceeds the 16 pairs"));
}

TEST(FindViolations, LimitsTheGpusOfThePlan) {
  WorkloadConfig config = example_config();
  config.hardware.max_gpus = 5;
  const Graph graph = build_graph(config.policy, {});
  const VertexPlan four{{4, 1, 1}, 1, {{0, 0}, {0, 0}, {0, 3}}};
  EXPECT_TRUE(find_violations({{}, {four, four}}, graph, config).empty());
  const VertexPlan others{{4, 1, 1}, 1, {{0, 0}, {1, 1}, {0, 3}}};
  const auto violations = find_violations({{}, {four, others}}, graph, config);
  ASSERT_EQ(violations.size(), 1U);
  EXPECT_THAT(violations[0].message, HasSubstr("uses 8 GPUs"));
}

TEST(FindViolations, WantsADecisionForEveryVertex) {
  const WorkloadConfig config = example_config();
  const auto violations =
      find_violations({{}, {one_gpu()}}, build_graph(config.policy, {}), config);
  ASSERT_EQ(violations.size(), 1U);
  EXPECT_THAT(violations[0].message, HasSubstr("1 vertices, the graph has 2"));
}

TEST(Cells, CutTheClusterWherePlacementsDiffer) {
  // Placement 0: nodes 0-1; placement 1: nodes 1-2; both all 4 GPUs: three cells 0, 0+1, 1.
  const auto cells = cut_into_cells({{{0, 0}, {0, 1}, {0, 3}}, {{0, 0}, {1, 2}, {0, 3}}});
  ASSERT_EQ(cells.size(), 3U);
  EXPECT_EQ(cells[0].users, 1U);
  EXPECT_EQ(cells[1].users, 3U);
  EXPECT_EQ(cells[2].users, 2U);
  EXPECT_EQ(cells[1].box, (Placement{{0, 0}, {1, 1}, {0, 3}}));
}

TEST(Cells, AgreeWithAnEnumerationOfTheGpus) {
  const ClusterSpec cluster = cluster_of(3, 4, 4);
  const std::vector<Placement> placements = {{{0, 1}, {0, 2}, {0, 3}},
                                             {{1, 2}, {2, 3}, {1, 2}},
                                             {{0, 0}, {1, 1}, {2, 3}},
                                             {{2, 2}, {0, 0}, {0, 0}}};
  std::vector<std::uint32_t> expected(48, 0);
  for (std::size_t i = 0; i < placements.size(); ++i) {
    for (const int gpu : placement_gpus(placements[i], cluster)) {
      expected[static_cast<std::size_t>(gpu)] |= 1U << i;
    }
  }
  std::vector<std::uint32_t> actual(48, 0);
  for (const PlacementCell& cell : cut_into_cells(placements)) {
    for (const int gpu : placement_gpus(cell.box, cluster)) {
      EXPECT_EQ(actual[static_cast<std::size_t>(gpu)], 0U) << "cells overlap at GPU " << gpu;
      actual[static_cast<std::size_t>(gpu)] = cell.users;
    }
  }
  EXPECT_EQ(actual, expected);
}

TEST(FindViolations, ChecksTheStructureAgainstTheInputs) {
  WorkloadConfig config = example_config();
  config.policy.algorithm = Algorithm::kPpo;
  config.policy.reward = RewardSource::kModel;
  config.workload.gen_quantiles = {{0.5, 4}, {1.0, 8}};
  const auto first = [&](const Structure& structure) {
    const Graph graph = build_graph(config.policy, structure);
    const Plan plan{structure, std::vector<VertexPlan>(graph.vertices.size(), one_gpu())};
    const auto violations = find_violations(plan, graph, config);
    return violations.empty() ? "" : violations.front().message;
  };
  EXPECT_THAT(first({0, 0, true, 0}), HasSubstr("policy.allow_ac_share"));
  config.policy.allow_ac_share = true;
  EXPECT_EQ(first({1, 1, true, 0}), "");
  EXPECT_THAT(first({1, 0, true, 0}), HasSubstr("one staleness"));
  EXPECT_EQ(first({0, 0, false, 1}), "");
  EXPECT_THAT(first({0, 0, false, 2}), HasSubstr("cut"));  // the end of the distribution
}

TEST(SmallestCallUnits, IsTheSmallestChunkOfInference) {
  WorkloadConfig config = example_config();  // 32 sequences
  config.workload.gen_quantiles = {{0.5, 4}, {0.7, 6}, {1.0, 8}};
  const Vertex generation{"g_pi", Op::kGenerate};
  const Vertex reference{"i_ref", Op::kInferReference, ModelRole::kReference};
  EXPECT_EQ(smallest_call_units(reference, {}, config), 32);
  // ⌈0.5 · 32⌉ = 16, ⌈0.7 · 32⌉ = 23, 32: chunks of 16, 7 and 9.
  EXPECT_EQ(smallest_call_units(reference, {0, 0, false, 0b11}, config), 7);
  EXPECT_EQ(smallest_call_units(generation, {0, 0, false, 0b11}, config), 32);
  // 0.7 · 10 is a little more than 7 in floating point, and means 7: chunks of 5, 2 and 3.
  config.workload.batch_size = 5;
  EXPECT_EQ(smallest_call_units(reference, {0, 0, false, 0b11}, config), 2);
}

}  // namespace
}  // namespace rpeg
