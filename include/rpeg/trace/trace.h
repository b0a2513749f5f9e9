#pragma once

/// Module `trace`: what each rank did and when, one JSONL file a rank (docs/trace.md). In: events
/// of a run. Out: the events again, with what is wrong with the files (`load_trace`), proof that
/// they are those of a compiled job (check_trace.h), a picture (export.h) and figures (analysis.h).

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace rpeg {

/// One instruction of one rank in one iteration.
struct TraceEvent {
  std::int64_t iteration = 0;
  std::int32_t rank = 0;
  std::int32_t instruction = 0;  ///< index in the rank's program
  std::string kind;              ///< generate, infer, train, send, receive, send_weights, …
  std::string vertex;            ///< the task: a vertex, or "t_pi->g_pi" of a weights transfer
  double start_s = 0.0;          ///< on rank 0's clock, since the start of the run
  double end_s = 0.0;
  std::int64_t bytes = 0;  ///< of a message
  std::int32_t peer = -1;
  std::int64_t version = -1;  ///< weights read by compute, or carried by a weights message
  std::int64_t written = -1;  ///< weights made by training
  double waited_s = 0.0;      ///< before start_s, for a message or for its group
  bool operator==(const TraceEvent&) const = default;
};

/// One sequence that a generation instruction finished.
struct TracedSequence {
  std::int64_t sequence = 0;  ///< of the iteration's global batch
  std::int64_t prompt_tokens = 0;
  std::int64_t response_tokens = 0;
  bool operator==(const TracedSequence&) const = default;
};

/// What a generation instruction finished; written by the leader of each replica only.
struct TracedRollouts {
  std::int64_t iteration = 0;
  std::int32_t rank = 0;
  std::int32_t instruction = 0;
  std::vector<TracedSequence> sequences;
  double verifier_s = 0.0;  ///< seconds that the verifier took for them
  bool operator==(const TracedRollouts&) const = default;
};

/// A measurement of a rank's clock against rank 0's.
struct ClockSample {
  double at_s = 0.0;      ///< when, on the clock that the rank's events use
  double offset_s = 0.0;  ///< to add to the rank's own clock for rank 0's
  double error_s = 0.0;   ///< the offset is right within this: half the round trip
  bool operator==(const ClockSample&) const = default;
};

/// What the first line of a file says about the run.
struct TraceStart {
  std::int32_t rank = 0;
  std::int32_t ranks = 1;
  std::string plan_digest;  ///< of the job
  ClockSample clock;        ///< events are written with this offset
};

/// Appends to `<dir>/rank_<r>.jsonl`, buffered. Every line carries its number and a checksum over
/// itself and the line before it; two microseconds an event (tests/bench/trace_bench.cpp). Not for
/// several threads at once. Throws kRuntime as soon as the file takes no more (a full disk).
class TraceWriter {
 public:
  /// Throws kUsage when the file cannot be created.
  TraceWriter(const std::filesystem::path& directory, const TraceStart& start);
  void add(const TraceEvent& event);
  void add(const TracedRollouts& rollout);
  /// Writes the end record, without which a trace does not count as complete, with the clock's
  /// offset at the end of the run. Nothing may be added after it.
  void close(const ClockSample& end);
  /// Bytes that reached the file or the buffer so far.
  std::int64_t bytes() const { return bytes_; }

 private:
  void finish_line();
  void write_buffer();

  std::filesystem::path path_;
  std::ofstream out_;
  std::string buffer_;
  std::size_t line_begin_ = 0;  ///< of the line being written, in `buffer_`
  std::int64_t line_ = 0;
  std::int64_t events_ = 0;
  std::int64_t rollouts_ = 0;
  std::int64_t bytes_ = 0;
  std::uint64_t checksum_ = 0;
};

/// Something in a trace that cannot be. `message` names both events.
struct TraceViolation {
  std::string rule;  ///< file, once, order, overlap, causality, group, version, bytes, peer, …
  std::string message;
  bool operator==(const TraceViolation&) const = default;
};

/// The trace of one rank, with times corrected linearly between its two clock measurements.
struct RankTrace {
  std::int32_t rank = 0;
  std::int32_t ranks = 1;  ///< of the run, as the file says
  std::string plan_digest;
  bool complete = false;       ///< it has an end record
  double clock_error_s = 0.0;  ///< the larger of the two measurements' errors
  std::vector<TraceEvent> events;
  std::vector<TracedRollouts> rollouts;
};

/// All files of a trace directory, ascending by rank.
struct Trace {
  std::vector<RankTrace> ranks;
  std::vector<TraceViolation> faults;  ///< lines removed, moved, altered or broken; missing ends
};

/// Reads a trace directory. What is wrong inside the files becomes faults of the result, each with
/// file and line. Throws kUsage when there is no trace at all.
Trace load_trace(const std::filesystem::path& directory);

/// The events of all ranks, by rank, each rank's in file order.
std::vector<TraceEvent> all_events(const Trace& trace);

/// Writes a trace back, with valid checksums and unmoved times: for tests and conversions.
void save_trace(const Trace& trace, const std::filesystem::path& directory);

/// The checksum of a line (without its checksum field) behind a line with the checksum `before`:
/// FNV-1a, 64 bits. It finds accidents and edits; it is no signature.
std::uint64_t trace_checksum(std::uint64_t before, std::string_view line);

}  // namespace rpeg
