#pragma once

namespace rpeg::apps {

/// Whether the command line asks to look at the trace of a run instead of running.
bool is_trace_requested(int argc, const char* const* argv);

/// rpeg-run --config run.yaml --check-trace DIR: proves from its trace that a run did what the job
/// says, or lists what it did otherwise (exit 5). --export-trace FILE: writes the trace for
/// ui.perfetto.dev. Needs no MPI.
void look_at_trace(int argc, const char* const* argv);

}  // namespace rpeg::apps
