#include "rpeg/plan/plan_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/rng.h"
#include "support/random_config.h"
#include "support/text.h"

namespace rpeg {
namespace {

using test::replaced;
using ::testing::HasSubstr;

int pick(Rng& rng, int low, int high) { return low + static_cast<int>(rng.below(high - low + 1)); }

Range random_range(Rng& rng, int size) {
  const int first = pick(rng, 0, size - 1);
  return {first, pick(rng, first, size - 1)};
}

/// A valid plan of one vertex: a random block, all of it dp or pp where the batch and the layers
/// allow it, else a single GPU.
VertexPlan random_vertex(Rng& rng,
                         const Vertex& vertex,
                         const Structure& structure,
                         const WorkloadConfig& config) {
  VertexPlan plan;
  plan.placement = {random_range(rng, config.hardware.racks),
                    random_range(rng, config.hardware.nodes_per_rack),
                    random_range(rng, config.hardware.gpus_per_node)};
  const int gpus = plan.placement.gpu_count();
  const std::int64_t units = std::min(config.workload.batch_size / config.policy.minibatches,
                                      smallest_call_units(vertex, structure, config));
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

/// Any structure that the inputs allow and whose chunks are not empty.
Structure random_structure(Rng& rng, const WorkloadConfig& config) {
  Structure structure{rng.below(3), rng.below(2)};
  if (config.policy.allow_ac_share && rng.below(2) == 0) {
    structure.ac_share = true;
    structure.tau_critic = structure.tau_actor;
  }
  structure.cuts = static_cast<std::uint32_t>(rng.next()) & possible_cuts(config);
  for (const Vertex& vertex : build_graph(config.policy, structure).vertices) {
    if (smallest_call_units(vertex, structure, config) < 1) structure.cuts = 0;
  }
  return structure;
}

PlanFile random_plan_file(Rng& rng) {
  PlanFile file;
  file.inputs = random_workload_config(rng);
  file.inputs.hardware.max_gpus.reset();
  file.plan.structure = random_structure(rng, file.inputs);
  for (const Vertex& vertex : build_graph(file.inputs.policy, file.plan.structure).vertices) {
    file.plan.vertices.push_back(random_vertex(rng, vertex, file.plan.structure, file.inputs));
  }
  const auto stages = response_parts(file.plan.structure.cuts, file.inputs.workload).size();
  const Graph graph =
      fuse_graph(build_graph(file.inputs.policy, file.plan.structure), static_cast<int>(stages))
          .graph;
  for (const Vertex& vertex : graph.vertices) {
    const auto order = static_cast<std::int64_t>(file.schedule.size());
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

TEST(PlanFile, RefusesAnotherSchema) {
  EXPECT_THAT(error_with("rpeg-plan/1", "rpeg-plan/2"), HasSubstr("rpeg-plan/1"));
}

/// The sample with both cuts: 32, 23 and 9 of 64 sequences (⌈0.85 · 64⌉ = 55), dp 4 for inference.
PlanFile cut_plan() {
  PlanFile file = sample_plan();
  file.plan.structure.cuts = 0b11;
  const Graph graph = build_graph(file.inputs.policy, file.plan.structure);
  for (std::size_t v = 0; v < graph.vertices.size(); ++v) {
    if (is_inference(graph.vertices[v].op)) {
      file.plan.vertices[v] = {{4, 1, 1}, 1, {{0, 0}, {0, 0}, {0, 3}}};
    }
  }
  file.schedule.clear();
  return file;
}

TEST(PlanFile, WritesAnEntryForEveryStage) {
  const std::string text = plan_file_text(cut_plan(), nullptr);
  EXPECT_THAT(text, HasSubstr("cuts: [0.5, 0.85]}"));
  for (const char* part :
       {"{id: g_pi.1, op: generate, model: actor, parallelism: [16, 1, 2], micro_batches: 2,\n"
        "     placement: {racks: [0, 0], nodes: [0, 7], gpus: [0, 3]},\n"
        "     stage: 1, share: 0.5, tokens: [0, 128]}\n",
        "stage: 2, share: 0.35, tokens: [128, 256]}\n",
        "{id: i_ref.3, op: infer_reference, model: reference, parallelism: [4, 1, 1],",
        "{id: t_pi, op: train, model: actor,"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_EQ(parse_plan_file(text, "plan.yaml"), cut_plan());
}

TEST(PlanFile, StagesOfAVertexShareOnePlan) {
  const std::string text = plan_file_text(cut_plan(), nullptr);
  const auto second_stage = [&](const std::string& from, const std::string& to) {
    const std::size_t at = text.find("{id: g_pi.2");
    return error_of(text.substr(0, at) + replaced(text.substr(at), from, to));
  };
  EXPECT_THAT(second_stage("micro_batches: 2", "micro_batches: 1"),
              HasSubstr("g_pi.2: all stages of a vertex share one plan, but its micro_batches is 1 "
                        "here and 2 in g_pi.1"));
  EXPECT_THAT(second_stage("[16, 1, 2]", "[8, 1, 4]"), HasSubstr("[8, 1, 4] here and [16, 1, 2]"));
  EXPECT_THAT(second_stage("nodes: [0, 7]", "nodes: [0, 6]"), HasSubstr("in g_pi.1"));
  EXPECT_THAT(second_stage("stage: 2", "stage: 3"), HasSubstr("expected 2 for this stage"));
  EXPECT_THAT(second_stage("share: 0.35", "share: 0.85"), HasSubstr("expected 0.35"));
  EXPECT_THAT(second_stage("tokens: [128, 256]", "tokens: [0, 256]"), HasSubstr("expected 128"));
  EXPECT_THAT(second_stage("id: g_pi.2,", "id: g_pi,"),
              HasSubstr("`g_pi` is no vertex of this job; there are g_pi.1, g_pi.2, g_pi.3"));
}

TEST(PlanFile, NamesTheTasksOfTheStages) {
  PlanFile file = cut_plan();
  file.predicted.breakdown["g_pi.3"].compute_s = 1.0;
  file.predicted.breakdown["t_pi->g_pi.1"].bytes = 1.0;
  file.predicted.breakdown["t_V->i_V"].bytes = 2.0;  // without the stage, which is the first
  file.predicted.memory_peak_bytes["g_pi"] = 3.0;
  const std::string text = plan_file_text(file, nullptr);
  EXPECT_EQ(parse_plan_file(text, "plan.yaml"), file);
  EXPECT_THAT(error_of(replaced(text, "t_pi->g_pi.1:", "t_pi->g_pi.2:")), HasSubstr("no task"));
}

TEST(PlanFile, AllowsOnlyTheCutsOfTheInputs) {
  EXPECT_THAT(error_with("cuts: []", "cuts: [0.6]"),
              HasSubstr("0.6 is no cut of this job; a cut is a share of finished responses at an "
                        "inner point of workload.gen_quantiles, here one of [0.5, 0.85]"));
  EXPECT_THAT(error_with("cuts: []", "cuts: [1.0]"), HasSubstr("here one of [0.5, 0.85]"));
  EXPECT_THAT(error_with("cuts: []", "cuts: [0.5, 0.5]"), HasSubstr("listed twice"));
  PlanFile whole = sample_plan();
  whole.inputs.policy.allow_fusion = false;
  EXPECT_THAT(error_of(replaced(plan_file_text(whole, nullptr), "cuts: []", "cuts: [0.5]")),
              HasSubstr("cannot be cut: policy.allow_fusion is false"));
}

TEST(PlanFile, ChunksMustHoldTheirParallelism) {
  PlanFile file = cut_plan();
  file.plan.vertices[1] = {{16, 1, 2}, 1, {{0, 0}, {0, 7}, {0, 3}}};  // i_R: 9 in its last chunk
  const std::string error = error_of(plan_file_text(file, nullptr));
  EXPECT_THAT(error, HasSubstr("i_R: dp = 16 exceeds the 9 sequences of the smallest chunk"));
}

TEST(PlanFile, SharesATrunkWhereTheInputsAllowIt) {
  EXPECT_THAT(error_with("ac_share: false", "ac_share: true"),
              HasSubstr("inputs.policy.allow_ac_share is false"));
  PlanFile file = sample_plan();
  file.inputs.policy.allow_ac_share = true;
  file.plan.structure = {1, 1, true, 0};
  file.plan.vertices.pop_back();
  file.schedule.clear();
  const std::string text = plan_file_text(file, nullptr);
  EXPECT_THAT(text, HasSubstr("{id: t_piV, op: train_joint, model: actor,"));
  EXPECT_EQ(parse_plan_file(text, "plan.yaml"), file);
  EXPECT_THAT(error_of(replaced(text, "critic: 1}", "critic: 0}")),
              HasSubstr("expected equal values, found actor 1 and critic 0"));
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
