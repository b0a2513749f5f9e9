#include "rpeg/plan/plan_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/rng.h"
#include "support/random_config.h"

namespace rpeg {
namespace {

using ::testing::HasSubstr;

int pick(Rng& rng, int low, int high) { return low + static_cast<int>(rng.below(high - low + 1)); }

Range random_range(Rng& rng, int size) {
  const int first = pick(rng, 0, size - 1);
  return {first, pick(rng, first, size - 1)};
}

/// A valid plan of one vertex: a random block, all of it dp or pp where the batch and the layers
/// allow it, else a single GPU.
VertexPlan random_vertex(Rng& rng, const Vertex& vertex, const WorkloadConfig& config) {
  VertexPlan plan;
  plan.placement = {random_range(rng, config.hardware.racks),
                    random_range(rng, config.hardware.nodes_per_rack),
                    random_range(rng, config.hardware.gpus_per_node)};
  const int gpus = plan.placement.gpu_count();
  const std::int64_t units = config.workload.batch_size / config.policy.minibatches;
  if (gpus <= units && rng.below(2) == 0) {
    plan.parallelism.dp = gpus;
  } else if (gpus <= config.model(vertex.model).layers &&
             gpus <= config.optimizer.max_pp.value_or(gpus)) {
    plan.parallelism.pp = gpus;
    plan.micro_batches = pick(rng, 1, static_cast<int>(units));
  } else {
    const Placement& p = plan.placement;
    plan.placement = {{p.racks.first, p.racks.first},
                      {p.nodes.first, p.nodes.first},
                      {p.gpus.first, p.gpus.first}};
  }
  return plan;
}

PlanFile random_plan_file(Rng& rng) {
  PlanFile file;
  file.inputs = random_workload_config(rng);
  file.inputs.hardware.max_gpus.reset();
  file.plan.structure = {rng.below(3), rng.below(2)};
  const Graph graph = build_graph(file.inputs.policy, file.plan.structure);
  for (const Vertex& vertex : graph.vertices) {
    const auto order = static_cast<std::int64_t>(file.schedule.size());
    file.plan.vertices.push_back(random_vertex(rng, vertex, file.inputs));
    file.schedule.push_back({vertex.name, rng.below(3), order});
    file.predicted.breakdown[vertex.name] = {
        rng.uniform(), rng.uniform(), rng.uniform(), rng.uniform(), 0.0};
    file.predicted.memory_peak_bytes[vertex.name] = 1e11 * rng.uniform();
  }
  for (const Edge& edge : graph.edges) {
    if (edge.kind == EdgeKind::kWeights) {
      const std::string id =
          graph.vertices[index(edge.from)].name + "->" + graph.vertices[index(edge.to)].name;
      file.schedule.push_back({id, 0, static_cast<std::int64_t>(file.schedule.size())});
      file.predicted.breakdown[id].bytes = 1e10 * rng.uniform();
    }
  }
  file.predicted.iteration_time_s = 100.0 * rng.uniform();
  file.predicted.lower_bound_s = rng.below(2) == 0 ? 0.0 : rng.uniform();
  file.predicted.throughput_tokens_per_s = 1e6 * rng.uniform();
  return file;
}

/// PPO of the published sample, every vertex on the whole cluster: dp 16, tp 2.
PlanFile sample_plan() {
  PlanFile file;
  file.inputs = load_workload_config(std::string(RPEG_SOURCE_DIR) +
                                     "/tests/golden/data/published/workload.yaml");
  file.inputs.output = {};
  const VertexPlan everywhere{{16, 1, 2}, 2, {{0, 0}, {0, 7}, {0, 3}}};
  const Graph graph = build_graph(file.inputs.policy, {});
  file.plan.vertices.assign(graph.vertices.size(), everywhere);
  for (const Vertex& vertex : graph.vertices) {
    file.schedule.push_back({vertex.name, 0, static_cast<std::int64_t>(file.schedule.size())});
  }
  return file;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string error_of(const std::string& text) {
  try {
    parse_plan_file(text, "plan.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "no error";
}

std::string error_with(const std::string& from, const std::string& to) {
  return error_of(replaced(plan_file_text(sample_plan(), nullptr), from, to));
}

TEST(PlanFile, IsWrittenAsDocumented) {
  const std::string text = plan_file_text(sample_plan(), nullptr);
  EXPECT_THAT(text,
              ::testing::StartsWith("schema: rpeg-plan/1\nunits: si\nalgorithm: ppo\n"
                                    "structure: {ac_share: false, tau: {actor: 0, critic: 0}, "
                                    "cuts: []}\nvertices:\n"));
  EXPECT_THAT(text,
              HasSubstr("  - {id: g_pi, op: generate, model: actor, parallelism: [16, 1, 2], "
                        "micro_batches: 2,\n"
                        "     placement: {racks: [0, 0], nodes: [0, 7], gpus: [0, 3]}}\n"));
  EXPECT_THAT(text, HasSubstr("  - {id: t_V, op: train, model: critic,"));
  EXPECT_THAT(text, HasSubstr("schedule:\n  - {id: g_pi, shift: 0, order: 0}\n"));
  EXPECT_THAT(text, HasSubstr("inputs:\n  hardware:\n    racks: 1\n"));
  const Provenance provenance{"rpeg-optimize", "1", "d", "h", "c", {}};
  EXPECT_EQ(plan_file_text(sample_plan(), &provenance).find(text), 0u);  // the block comes last
}

TEST(PlanFile, WhatIsWrittenReadsBackEqual) {
  Rng rng(37);
  const Provenance provenance{"rpeg-optimize", "0.1", "date", "host", "rpeg-optimize --x", {}};
  for (int round = 0; round < 300; ++round) {
    const PlanFile file = random_plan_file(rng);
    const std::string text = plan_file_text(file, round % 2 == 0 ? nullptr : &provenance);
    ASSERT_EQ(parse_plan_file(text, "plan.yaml"), file) << text;
  }
}

TEST(PlanFile, AHandWrittenPlanNeedsOnlyDecisionsAndInputs) {
  PlanFile bare = sample_plan();
  bare.schedule.clear();
  std::string text = plan_file_text(bare, nullptr);
  text = replaced(text, "structure: {ac_share: false, tau: {actor: 0, critic: 0}, cuts: []}\n", "");
  text = replaced(text, " op: generate, model: actor,", "");
  EXPECT_EQ(parse_plan_file(text, "plan.yaml"), bare);
}

TEST(PlanFile, AcceptsVerticesInAnyOrder) {
  PlanFile file = sample_plan();
  file.schedule.clear();
  file.plan.vertices.front().micro_batches = 1;
  std::string text = plan_file_text(file, nullptr);
  const std::size_t first = text.find("  - {id: g_pi");
  const std::size_t second = text.find("  - {id: i_R");
  const std::string g_pi = text.substr(first, second - first);
  text.erase(first, g_pi.size());
  text.insert(text.find("inputs:"), g_pi);
  EXPECT_EQ(parse_plan_file(text, "plan.yaml"), file);
}

TEST(PlanFile, ChecksIdsAgainstTheGraph) {
  EXPECT_THAT(error_with("id: i_R,", "id: i_X,"), HasSubstr("`i_X` is no vertex of this job"));
  EXPECT_THAT(error_with("id: i_R,", "id: i_X,"), HasSubstr("no entry for the vertex `i_R`"));
  EXPECT_THAT(error_with("id: i_R, op: infer_reward, model: reward", "id: g_pi"),
              HasSubstr("`g_pi` appears twice"));
  EXPECT_THAT(error_with("op: generate", "op: train"), HasSubstr("expected generate"));
  EXPECT_THAT(error_with("model: critic", "model: actor"), HasSubstr("expected critic"));
  EXPECT_THAT(error_with("{id: t_V, shift", "{id: t_R->t_V, shift"),
              HasSubstr("no vertex or weights transfer"));
  EXPECT_THAT(error_with("order: 1}", "order: 0}"), HasSubstr("two entries have the order 0"));
  EXPECT_THAT(error_with("algorithm: ppo", "algorithm: grpo"),
              HasSubstr("is grpo here and ppo in inputs.policy.algorithm"));
}

TEST(PlanFile, ReportsStructuralViolationsAtTheirVertex) {
  const std::string error = error_with("[16, 1, 2]", "[16, 1, 3]");
  EXPECT_THAT(error, HasSubstr("plan.yaml:6:5: `vertices[0]`: g_pi: "));
  EXPECT_THAT(error, HasSubstr("48"));  // 16 x 1 x 3 on 32 GPUs
  EXPECT_THAT(error_with("nodes: [0, 7]", "nodes: [0, 8]"), HasSubstr("nodes"));
}

TEST(PlanFile, BoundsSizesBeforeAnythingMultipliesThem) {
  EXPECT_THAT(error_with("[16, 1, 2]", "[100000, 100000, 100000]"), HasSubstr("more than"));
  EXPECT_THAT(error_with("nodes: [0, 7]", "nodes: [0, 900000]"), HasSubstr("more than"));
  EXPECT_THAT(error_with("nodes: [0, 7]", "nodes: [7, 0]"), HasSubstr("ends before it starts"));
  EXPECT_THAT(error_with("nodes: [0, 7]", "nodes: [0, 7, 8]"), HasSubstr("expected 2 numbers"));
}

TEST(PlanFile, SaysOfMissingInputsNothingElse) {
  const std::string text = plan_file_text(sample_plan(), nullptr);
  const std::string error = error_of(text.substr(0, text.find("\ninputs:") + 1));
  EXPECT_THAT(error, HasSubstr("`inputs`: required key is missing"));
  EXPECT_EQ(error.find("inputs."), std::string::npos) << error;
}

TEST(PlanFile, RefusesWhatThisVersionCannotRun) {
  EXPECT_THAT(error_with("cuts: []", "cuts: [0.5]"), HasSubstr("not supported by this version"));
  EXPECT_THAT(error_with("ac_share: false", "ac_share: true"), HasSubstr("not supported"));
  EXPECT_THAT(error_with("rpeg-plan/1", "rpeg-plan/2"), HasSubstr("rpeg-plan/1"));
}

TEST(PlanFile, MutatedFilesNeverCrash) {
  Rng rng(41);
  const std::string seed_text = plan_file_text(random_plan_file(rng), nullptr);
  const std::string alphabet = "{}[]:,-#&'\" \n.eE+0123456789az\x01";
  for (int round = 0; round < 2000; ++round) {
    std::string text = seed_text;
    for (std::int64_t edits = 1 + rng.below(4); edits > 0; --edits) {
      const auto at = static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(text.size())));
      text[at] =
          alphabet[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(alphabet.size())))];
    }
    try {
      parse_plan_file(text, "f");
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kUsage) << error.what() << text;
    }
  }
}

}  // namespace
}  // namespace rpeg
