#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "rpeg/job/job.h"

namespace rpeg {

/// Compiles a plan and a job configuration: verifies the plan against the real models (shapes of
/// config.json and of the safetensors headers, vocabulary of the tokenizer, prompt and response
/// lengths against the model's positions), assigns ranks, builds the rank programs and transfer
/// lists, and proves them (`check_programs`). Throws kUsage for whatever cannot run, each feature
/// that this version lacks by name. `output_dir` is where relative run-time outputs go.
Job compile_job(const JobConfig& config,
                const PlanFile& plan,
                const std::filesystem::path& output_dir);

/// Executes all rank programs symbolically for `iterations`: every receive must find its message,
/// every collective (training) must be entered by all members, each compute must have its inputs
/// and the right weight version, and no rank may wait for ever. Throws kUsage with the cycle of
/// waiting ranks, or the first inconsistency, named by rank, instruction and vertex.
void check_programs(const Job& job, int iterations);

/// Text of mpirun.sh: starts rpeg-run on the right number of ranks without a batch system.
std::string mpirun_script(const Job& job, const std::filesystem::path& run_yaml);
/// Text of submit.sbatch.
std::string sbatch_script(const Job& job, const std::filesystem::path& run_yaml);
/// Text of summary.md: what runs where, memory, expected step time.
std::string job_summary(const Job& job);

}  // namespace rpeg
