#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "rpeg/job/compile.h"

namespace rpeg {
namespace {

/// Seconds between Slurm's warning and the end: time to finish an iteration.
std::int64_t warning_s(const Job& job) {
  const double twice = 2.0 * job.predicted.iteration_time_s;
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(twice) + 60, 60, 3600);
}

/// Quotes a word for the shell.
std::string shell_word(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + "'";
}

std::map<int, int> ranks_of_nodes(const Job& job) {
  std::map<int, int> counts;
  for (const RankSpec& rank : job.ranks) {
    ++counts[rank.node];
  }
  return counts;
}

bool has_equal_nodes(const std::map<int, int>& nodes) {
  return std::all_of(nodes.begin(), nodes.end(), [&](const auto& node) {
    return node.second == nodes.begin()->second;
  });
}

int most_ranks_of_a_node(const std::map<int, int>& nodes) {
  int most = 0;
  for (const auto& [node, ranks] : nodes) {
    most = std::max(most, ranks);
  }
  return most;
}

std::string find_executable(const ScriptPaths& paths) {
  return fmt::format(R"sh(rpeg_run="${{RPEG_RUN:-}}"
if [ -z "$rpeg_run" ]; then rpeg_run={}; fi
if [ ! -x "$rpeg_run" ]; then
  rpeg_run="$(command -v rpeg-run)" || {{
    echo "rpeg-run not found: put it in PATH or set RPEG_RUN to its path" >&2
    exit 2
  }}
fi
)sh",
                     shell_word(paths.rpeg_run.string()));
}

/// Without yielding, waiting ranks take the cores of the working ones when they share them.
std::string settings(int ranks_here, const std::string& cores) {
  return fmt::format(R"sh(cores="{}"
if [ {} -gt "$cores" ]; then
  export OMPI_MCA_mpi_yield_when_idle=1
fi
export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-$((cores > {} ? cores / {} : 1))}}"
)sh",
                     cores,
                     ranks_here,
                     ranks_here,
                     ranks_here);
}

std::string directive(const char* name, const std::string& value) {
  if (value.empty()) {
    return "";
  }
  const char* quote = value.find(' ') == std::string::npos ? "" : "\"";
  return fmt::format("#SBATCH --{}={}{}{}\n", name, quote, value, quote);
}

std::string directives(const Job& job, const ScriptPaths& paths) {
  const SlurmConfig& slurm = job.config.slurm;
  const auto nodes = ranks_of_nodes(job);
  std::string text =
      directive("job-name", fmt::format("rpeg-{}", to_string(job.inputs.policy.algorithm)));
  text += directive("nodes", fmt::format("{}", nodes.size()));
  text += directive("ntasks", fmt::format("{}", job.ranks.size()));
  text += directive("ntasks-per-node", fmt::format("{}", most_ranks_of_a_node(nodes)));
  text += directive("gres", slurm.gres_per_node);
  text += directive("time", slurm.time);
  text += directive("partition", slurm.partition);
  text += directive("account", slurm.account);
  // Without "B:" the signal goes to the ranks: they finish the iteration and save.
  text += directive("signal", fmt::format("USR1@{}", warning_s(job)));
  text += directive("output", (paths.run_yaml.parent_path() / "slurm-%j.out").string());
  text += directive("open-mode", "append");
  for (const std::string& line : slurm.extra) {
    text += line.starts_with("#") ? line + "\n" : "#SBATCH " + line + "\n";
  }
  return text;
}

/// The lines that make srun place ranks as compiled: consecutive ranks fill a node. Where nodes
/// have different numbers of ranks, the list of hosts says so line by line.
std::string host_list(const std::map<int, int>& nodes) {
  std::string counts;
  for (const auto& [node, ranks] : nodes) {
    counts += (counts.empty() ? "" : " ") + fmt::format("{}", ranks);
  }
  return fmt::format(R"sh(counts=({})
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
SLURM_HOSTFILE="$(mktemp)"
export SLURM_HOSTFILE
trap 'rm -f "$SLURM_HOSTFILE"' EXIT
for i in "${{!counts[@]}}"; do
  for ((j = 0; j < counts[i]; j++)); do echo "${{hosts[i]}}"; done
done >"$SLURM_HOSTFILE"
)sh",
                     counts);
}

}  // namespace

std::string mpirun_script(const Job& job, const ScriptPaths& paths) {
  const auto ranks = static_cast<int>(job.ranks.size());
  return fmt::format(R"sh(#!/usr/bin/env bash
# Runs the compiled job on {0} ranks, without a batch system. Arguments go to rpeg-run; arguments for
# mpirun (such as --hostfile FILE) go into the variable MPIRUN_ARGS.
set -euo pipefail
here="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
{1}{2}# More ranks than cores are welcome, and mpirun's idea of a slot does not matter.
export OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# On SIGINT and SIGTERM mpirun kills its ranks after a second. SIGUSR1 it passes on, and they save. It has
# a session of its own, so that Ctrl-C reaches this script only, and ends when the script is killed.
# shellcheck disable=SC2086  # MPIRUN_ARGS is a list of words
setpriv --pdeathsig TERM setsid mpirun -np {0} ${{MPIRUN_ARGS:-}} "$rpeg_run" --config "$here"/{3} "$@" &
trap 'kill -USR1 "$!"' INT TERM HUP USR1
code=0
wait "$!" || code=$?
while kill -0 "$!" 2>/dev/null; do  # a signal ended the wait, not mpirun
  code=0
  wait "$!" || code=$?
done
exit "$code"
)sh",
                     ranks,
                     find_executable(paths),
                     settings(ranks, "$(nproc)"),
                     shell_word(paths.run_yaml.filename().string()));
}

std::string sbatch_script(const Job& job, const ScriptPaths& paths) {
  const auto nodes = ranks_of_nodes(job);
  const bool equal = has_equal_nodes(nodes);
  std::string text = "#!/bin/bash\n" + directives(job, paths);
  text +=
      "# Written by rpeg-jobplan for this plan: compile again instead of editing the numbers.\n";
  text += "set -euo pipefail\n";
  for (const std::string& module : job.config.slurm.modules) {
    text += "module load " + shell_word(module) + "\n";
  }
  text += find_executable(paths);
  text += settings(most_ranks_of_a_node(nodes), "${SLURM_CPUS_ON_NODE:-$(nproc)}");
  if (!equal) {
    text += host_list(nodes);
  }
  const std::string& container = job.config.slurm.container;
  text += fmt::format(
      "srun --mpi=pmix --ntasks={} --distribution={}{} --kill-on-bad-exit=1 \\\n"
      "  \"$rpeg_run\" --config {} \"$@\"\n",
      job.ranks.size(),
      equal ? "block" : "arbitrary",
      container.empty() ? "" : " --container-image=" + shell_word(container),
      shell_word(paths.run_yaml.string()));
  return text;
}

}  // namespace rpeg
