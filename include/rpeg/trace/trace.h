#pragma once

/// Module `trace`: what each rank did and when, one JSONL file a rank.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace rpeg {

/// One operation of one rank in one iteration.
struct TraceEvent {
  std::int64_t iteration = 0;
  std::int32_t rank = 0;
  std::int32_t instruction = 0;  ///< index in the rank's program
  std::string kind;              ///< generate, infer, train, send, receive, send_weights, …
  std::string vertex;
  double start_s = 0.0;  ///< on rank 0's clock, since the start of the run
  double end_s = 0.0;
  std::int64_t bytes = 0;
  std::int32_t peer = -1;
  std::int64_t version = -1;  ///< weight version read or written
  bool operator==(const TraceEvent&) const = default;
};

/// Appends events to `<dir>/rank_<r>.jsonl`, buffered. `close` reports a full disk as kRuntime.
class TraceWriter {
 public:
  TraceWriter(const std::filesystem::path& directory, int rank);
  void add(const TraceEvent& event);
  void close();

 private:
  std::filesystem::path path_;
  std::ofstream out_;
};

/// Reads all events of a trace directory, ordered by rank, then file order; throws kTrace for a
/// broken line.
std::vector<TraceEvent> load_trace(const std::filesystem::path& directory);

}  // namespace rpeg
