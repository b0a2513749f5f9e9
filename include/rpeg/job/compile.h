#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "rpeg/job/job.h"

namespace rpeg {

/// Compiles a plan and a job configuration: verifies the plan against the real models (shapes of
/// config.json and of the safetensors headers, vocabulary of the tokenizer, prompt and response
/// lengths against the model's positions), assigns ranks, builds the rank programs and transfer
/// lists, and proves them (`check_programs`). Throws kUsage for whatever cannot run, each feature
/// that this version lacks by name, and for a rank that needs more than `device_bytes` of memory
/// (see check_memory). `output_dir` is where relative run-time outputs go.
Job compile_job(const JobConfig& config,
                const PlanFile& plan,
                const std::filesystem::path& output_dir,
                std::optional<std::int64_t> device_bytes = {});

/// Executes all rank programs together without data, at least `iterations` iterations and enough
/// for shifts and staleness to show, then the receives of the weights that are still on their way
/// (kReceiveWeights for the iterations n … n + delta − 1 that would follow). Computations are
/// collectives: of a replica (generation, inference) or of the whole block (training). Throws
/// kUsage naming rank, instruction, vertex and iteration of the first fault: an input that is not
/// there or comes twice, a weight version other than max(0, k − tau), weights overwritten before
/// their last reader, a sender that runs ahead of its receiver by more iterations than the graph
/// allows, a message that nobody receives; for a deadlock the cycle of waiting ranks, a line each.
void check_programs(const Job& job, int iterations);

/// Throws kUsage naming the first input file (`input_digests`) that changed since the compilation.
/// Of a weights file the header and the size are compared.
void check_inputs(const Job& job);

/// Where the scripts find things.
struct ScriptPaths {
  std::filesystem::path run_yaml;  ///< absolute
  std::filesystem::path rpeg_run;  ///< the executable beside rpeg-jobplan; used when it exists
};
/// Text of mpirun.sh: starts rpeg-run on the right number of ranks without a batch system. Further
/// arguments of the script go to rpeg-run, those in the variable MPIRUN_ARGS to mpirun.
std::string mpirun_script(const Job& job, const ScriptPaths& paths);
/// Text of submit.sbatch: nodes and tasks as the plan places them, the keys of `slurm`, srun with
/// PMIx.
std::string sbatch_script(const Job& job, const ScriptPaths& paths);
/// Text of summary.md: what runs where, groups, copies, messages beside their predicted bytes, the
/// memory of every rank, expected step time.
std::string job_summary(const Job& job);

}  // namespace rpeg
