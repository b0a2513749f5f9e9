#pragma once

/// A job small enough to compile in milliseconds: a model of two layers with its files, a dataset
/// and plans with any placement.

#include <filesystem>
#include <map>
#include <string>

#include "rpeg/job/compile.h"

namespace rpeg {

/// Two layers of 8, vocabulary 8: the shape that `write_tiny_model` writes.
ModelSpec tiny_spec();

/// A cluster of 2 nodes with 4 GPUs, 8 prompts with 2 samples, contexts of 12 and responses of 4
/// tokens, all models tiny.
WorkloadConfig tiny_inputs(Algorithm algorithm);

/// Plan with dp = size of the block for every vertex, unless its placement says otherwise:
/// "r0 n[0-0] g[0-3] as 1 2 2" is dp 1, pp 2, tp 2. Vertices without a placement run on
/// `r0 n[0-0] g[0-0]`. Scheduled in graph order.
PlanFile tiny_plan(const WorkloadConfig& inputs,
                   const std::map<std::string, std::string>& placements,
                   const Structure& structure = {});

/// Programs, copies and transfers of a plan, without looking at any file.
Job tiny_job(const PlanFile& plan, Publish publish = Publish::kAuto);

/// Writes config.json, tokenizer.json (eight one-character tokens) and model.safetensors.
void write_tiny_model(const std::filesystem::path& directory, const ModelSpec& spec);

/// Writes models/actor, data.jsonl (prompts of 3 characters), plan.yaml and job.yaml, and returns
/// the path of job.yaml. `replace` maps a line of job.yaml to another ("" deletes it).
std::filesystem::path write_tiny_job(const std::filesystem::path& directory,
                                     const PlanFile& plan,
                                     const std::map<std::string, std::string>& replace = {});

}  // namespace rpeg
