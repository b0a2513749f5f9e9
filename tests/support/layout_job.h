#pragma once

/// Jobs on a model of four layers with grouped-query attention, under any plan: what layout tests
/// compare.

#include <filesystem>
#include <map>
#include <string>

#include "rpeg/job/compile.h"

namespace rpeg {

/// Where and how a vertex runs, as text: "r0 n[0-0] g[0-3] dp2 pp1 tp2 m2".
using VertexLayouts = std::map<std::string, std::string>;

struct LayoutJob {
  Algorithm algorithm = Algorithm::kGrpo;
  DpoMode dpo_mode = DpoMode::kOnline;
  RewardSource reward = RewardSource::kVerifier;
  std::int64_t iterations = 3;
  std::int64_t prompts = 8;
  std::int64_t samples = 2;
  std::int64_t minibatches = 1;
  std::int64_t generation_length = 6;
  double learning_rate = 1e-3;
  bool recompute_logprobs = false;
  bool fuse = false;  ///< plans may cut generation at 0.5 and 0.75 of the sequences
  Structure structure;
  Recompute recompute = Recompute::kFull;
  std::int64_t zero_stage = 1;
  Publish publish = Publish::kAuto;
  bool tied = false;
  VertexLayouts layouts;                           ///< of some vertices
  std::string elsewhere = "r0 n[0-0] g[0-0] dp1";  ///< of all others
  int gpus = 8;                                    ///< of the one node
  std::uint64_t seed = 1;
};

/// What the plan is made for.
WorkloadConfig layout_inputs(const LayoutJob& options);
/// The plan, with the schedule that simulating it on a slow device gives.
PlanFile layout_plan(const LayoutJob& options);
/// The same plan with that schedule.
PlanFile scheduled(const PlanFile& file);

/// Compiles the job; model files and outputs go below `directory`.
Job compile_layout_job(const LayoutJob& options, const std::filesystem::path& directory);
/// With another plan for the same inputs.
Job compile_layout_job(const LayoutJob& options,
                       const PlanFile& plan,
                       const std::filesystem::path& directory);

/// Writes the four-layer model (config.json, tokenizer.json of the copy demonstration).
void write_layout_model(const std::filesystem::path& directory, bool tied, bool scalar_head);

/// A vertex plan from its text; throws kUsage.
VertexPlan parse_layout(const std::string& text);

}  // namespace rpeg
