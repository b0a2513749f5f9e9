#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "rpeg/job/job.h"
#include "rpeg/runtime/run.h"

namespace rpeg::apps {

/// Shows the progress of a run on stderr: one live line on a terminal, else a log line every ten
/// iterations or ten seconds, whichever comes first.
class RunDisplay {
 public:
  RunDisplay(std::int64_t iterations, bool quiet, bool is_terminal);
  ~RunDisplay() { finish(); }
  RunDisplay(const RunDisplay&) = delete;
  RunDisplay& operator=(const RunDisplay&) = delete;
  void show(const IterationMetrics& metrics);
  /// Ends the live line.
  void finish();

 private:
  std::int64_t iterations_;
  bool quiet_;
  bool is_terminal_;
  bool line_open_ = false;
  std::int64_t shown_iteration_ = -1;
  std::chrono::steady_clock::time_point shown_at_;
};

/// What a run ends with on stdout: predicted beside measured per task, the reward curve, the
/// held-out reward and where the files lie.
std::string run_report(const Job& job, const RunSummary& summary);

}  // namespace rpeg::apps
