#include "run_trace.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <set>
#include <string_view>

#include "common.h"
#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/units.h"
#include "rpeg/trace/check_trace.h"
#include "rpeg/trace/export.h"

namespace rpeg::apps {
namespace {

/// The least sure pair of clocks.
double largest_tolerance_s(const Trace& trace) {
  double largest = 0.0;
  for (const RankTrace& a : trace.ranks) {
    for (const RankTrace& b : trace.ranks) {
      largest = std::max(largest, clock_tolerance_s(a, b));
    }
  }
  return largest;
}

void check_and_tell(const Job& job, const Trace& trace, const std::string& directory) {
  const std::vector<TraceViolation> violations = check_trace(job, trace);
  if (!violations.empty()) {
    std::cout << violations_text(violations);
    throw Error(ErrorKind::kTrace,
                fmt::format("the trace in {} contradicts the job: {} violation{}",
                            directory,
                            violations.size(),
                            violations.size() == 1 ? "" : "s"));
  }
  const std::vector<TraceEvent> events = all_events(trace);
  std::set<std::int64_t> iterations;
  for (const TraceEvent& event : events) {
    if (event.kind != to_string(InstructionKind::kReceiveWeights)) {
      iterations.insert(event.iteration);
    }
  }
  std::cout << fmt::format(
      "the trace is as compiled: {} ranks, {} iterations, {} instructions; clocks agree within "
      "{}\n",
      trace.ranks.size(),
      iterations.size(),
      events.size(),
      format_seconds(largest_tolerance_s(trace)));
}

}  // namespace

bool is_trace_requested(int argc, const char* const* argv) {
  return std::any_of(argv + 1, argv + argc, [](std::string_view flag) {
    return flag.starts_with("--check-trace") || flag.starts_with("--export-trace");
  });
}

void look_at_trace(int argc, const char* const* argv) {
  std::string config;
  std::string directory;
  std::string output;
  CLI::App app{
      "Proves from its trace that a run did what its job says; no rank runs.\n"
      "Example: rpeg-run --config run/run.yaml --check-trace run/trace --export-trace trace.json",
      "rpeg-run"};
  app.add_option("--config", config, "compiled job (run.yaml of rpeg-jobplan)")->required();
  auto* check = app.add_option("--check-trace", directory, "trace directory to check");
  app.add_option("--export-trace",
                 output,
                 "write the trace as JSON for ui.perfetto.dev; without --check-trace that of "
                 "runtime.trace.dir, unchecked");
  if (!parse_flags(app, argc, argv)) {
    return;
  }
  set_up_logging({});
  const Job job = load_job(config);
  const bool checks = check->count() > 0;
  if (!checks) {
    directory = job.config.runtime.trace_dir.string();
    if (directory.empty()) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("{} has no runtime.trace.dir: set it in job.yaml, compile and run "
                              "again, or name a trace with --check-trace DIR",
                              config));
    }
  }
  const Trace trace = load_trace(directory);
  if (!output.empty()) {
    write_file_atomic(output, perfetto_json(job, trace));
    std::cout << "wrote " << output << '\n';
  }
  if (checks) {
    check_and_tell(job, trace, directory);
  }
}

}  // namespace rpeg::apps
