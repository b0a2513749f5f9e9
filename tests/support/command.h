#pragma once

#include <filesystem>
#include <string>

#include "rpeg/job/job.h"

namespace rpeg {

/// What a command printed (stdout and stderr together) and its exit code.
struct CommandResult {
  int code = -1;
  std::string output;
};

/// Runs a shell command to its end; after `limit_s` seconds it is killed (code 124 or 137).
CommandResult run_command(const std::string& command, int limit_s = 60);

/// Writes `<directory>/run.yaml` of a job.
std::filesystem::path write_run_yaml(const Job& job, const std::filesystem::path& directory);

/// `mpirun -np <ranks> rpeg-run --config <run.yaml> <flags>`, allowed for root and for more ranks
/// than cores; 0 ranks: without mpirun. The paths are those of this build.
std::string rpeg_run_command(int ranks,
                             const std::filesystem::path& run_yaml,
                             const std::string& flags = "");

}  // namespace rpeg
