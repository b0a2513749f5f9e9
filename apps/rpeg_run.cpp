// rpeg-run: executes a compiled job; one process a rank, started by mpirun or srun.

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <iostream>
#include <thread>

#include "common.h"
#include "kernel_threads.h"
#include "rpeg/base/error.h"
#include "rpeg/comm/mpi.h"
#include "rpeg/job/compile.h"
#include "rpeg/runtime/run.h"
#include "run_display.h"
#include "run_trace.h"

namespace {

struct Flags {
  std::string config;
  std::string replay;
  std::int64_t iterations = -1;
  bool eval_only = false;
  bool allow_commands = false;
  bool quiet = false;
  bool debug = false;
};

constexpr const char* kExamples = R"(Examples:
  mpirun -np 2 rpeg-run --config run/run.yaml
  rpeg-run --config run/run.yaml                   a job of one rank
  mpirun -np 2 rpeg-run --config run/run.yaml --eval-only
  mpirun -np 2 rpeg-run --config run/run.yaml --replay rollouts.jsonl --iterations 5
  mpirun -np 2 rpeg-run --config run/run.yaml --allow-commands
  rpeg-run --config run/run.yaml --check-trace run/trace --export-trace trace.json
Exit codes: 0 success, 2 usage or input, 4 the run failed, 5 the trace contradicts the job,
70 internal error, 75 stopped by a signal.
SIGINT, SIGTERM or SIGUSR1 finish what is under way, save the models and exit with 75.)";

// A signal handler can reach nothing but a global.
std::atomic<bool> stop_requested{false};

void stop_on_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    std::signal(signal, [](int received) {
      stop_requested = true;
      std::signal(received, SIG_DFL);  // the second one ends the process
    });
  }
}

bool parse(int argc, const char* const* argv, Flags* flags) {
  CLI::App app("Trains a model as a compiled job says, or evaluates it.", "rpeg-run");
  app.add_option("--config", flags->config, "compiled job (run.yaml of rpeg-jobplan)")->required();
  app.add_flag("--eval-only", flags->eval_only, "only the greedy reward on the held-out prompts");
  app.add_option("--replay", flags->replay, "take rollouts from this JSONL file or directory");
  app.add_option("--iterations", flags->iterations, "stop after this many iterations")
      ->check(rpeg::apps::above_zero);
  app.add_flag("--allow-commands",
               flags->allow_commands,
               "let the job start the program that its reward names");
  app.add_flag("--quiet", flags->quiet, "only warnings and the final report");
  app.add_flag("--debug", flags->debug, "more on what happens");
  app.footer(kExamples);
  return rpeg::apps::parse_flags(app, argc, argv);
}

int run(const Flags& flags, rpeg::Comm& world, bool* started) {
  const bool is_first = world.rank() == 0;
  rpeg::apps::set_up_logging({flags.debug, flags.quiet || !is_first, ""});
  rpeg::apps::share_cores(world);
  rpeg::Job job;
  rpeg::run_together(world, [&] {
    job = rpeg::load_job(flags.config);
    if (is_first) {
      rpeg::check_inputs(job);
    }
  });
  if (!flags.replay.empty()) {
    job.config.runtime.rollouts.clear();  // a replay writes none, so the report names none
  }
  const std::int64_t planned = job.config.train.iterations;
  const std::int64_t iterations =
      flags.iterations > 0 ? std::min(flags.iterations, planned) : planned;
  rpeg::apps::RunDisplay display(iterations, flags.quiet, rpeg::apps::is_interactive());
  stop_on_signals();
  const rpeg::RunOptions options{
      .eval_only = flags.eval_only,
      .replay = flags.replay,
      .allow_commands = flags.allow_commands,
      .max_iterations = flags.iterations,
      .stop = &stop_requested,
      .on_start = [&] { *started = true; },
      .on_iteration = [&](const rpeg::IterationMetrics& metrics) { display.show(metrics); },
      .on_gradient = {}};
  const rpeg::RunSummary summary = rpeg::run_job(job, world, options);
  display.finish();
  std::cout << rpeg::apps::run_report(job, summary);
  if (summary.stopped && is_first) {
    spdlog::warn("stopped by a signal after {} iterations", summary.iterations.size());
  }
  return summary.stopped ? rpeg::exit_code(rpeg::ErrorKind::kStopped) : 0;
}

/// What several ranks found is told by the lowest of them: its abort ends the others meanwhile.
void give_way(int rank) {
  std::signal(SIGTERM, SIG_DFL);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500) * std::min(rank, 4));
}

/// Before the start a usage error is the same on all ranks: rank 0 tells it, all return. Any other
/// error may leave ranks waiting for this one: it ends them all.
int run_rank(int argc, const char* const* argv) {
  rpeg::MpiSession session;
  if (session.rank() != 0) {
    std::cout.setstate(std::ios::failbit);  // one help text, not one a rank
  }
  bool started = false;
  try {
    Flags flags;
    const auto world = session.world();
    return parse(argc, argv, &flags) ? run(flags, *world, &started) : 0;
  } catch (const std::exception& fault) {
    const auto* error = dynamic_cast<const rpeg::Error*>(&fault);
    const bool alike = session.size() == 1 ||
                       (!started && error != nullptr && error->kind() == rpeg::ErrorKind::kUsage);
    if (alike && session.rank() != 0) {
      return rpeg::exit_code(error->kind());
    }
    if (!alike) {
      give_way(session.rank());
    }
    // Told before MPI_Finalize: once a rank has ended with an error, mpirun kills the others.
    const std::string name = alike ? "rpeg-run" : fmt::format("rpeg-run: rank {}", session.rank());
    const int code = rpeg::apps::run_main(name, [] { throw; });
    if (!alike) {
      session.abort(code);
    }
    return code;
  }
}

}  // namespace

int main(int argc, char** argv) {
  int code = 0;
  if (rpeg::apps::is_trace_requested(argc, argv)) {
    return rpeg::apps::run_main("rpeg-run", [&] { rpeg::apps::look_at_trace(argc, argv); });
  }
  const int failed = rpeg::apps::run_main("rpeg-run", [&] { code = run_rank(argc, argv); });
  return failed != 0 ? failed : code;
}
