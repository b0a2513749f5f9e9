#include "support/command.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <stdexcept>

#include "rpeg/base/file.h"
#include "support/mpi_environment.h"

namespace rpeg {

CommandResult run_command(const std::string& command, int limit_s) {
  const std::string bounded = fmt::format("timeout -k 5 {} bash -c '{}' 2>&1", limit_s, command);
  FILE* pipe = ::popen(bounded.c_str(), "r");
  if (pipe == nullptr) {
    throw std::runtime_error("cannot start " + command);
  }
  CommandResult result;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    result.output.append(buffer.data(), n);
  }
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::filesystem::path write_run_yaml(const Job& job, const std::filesystem::path& directory) {
  const auto path = directory / "run.yaml";
  write_file_atomic(path, job_text(job, nullptr));
  return path;
}

std::string rpeg_run_command(int ranks,
                             const std::filesystem::path& run_yaml,
                             const std::string& flags) {
  const std::string launcher = ranks == 0 ? "" : fmt::format("{} -np {} ", RPEG_MPIEXEC, ranks);
  return fmt::format(
      "{}ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1 {}{}/bin/rpeg-run --config {} {}",
      kMpiEnvironment,
      launcher,
      RPEG_BINARY_DIR,
      run_yaml.string(),
      flags);
}

}  // namespace rpeg
