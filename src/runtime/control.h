#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "runtime/metrics.h"

namespace rpeg {

/// Iterations by which ranks may run ahead of rank 0: iteration j waits until rank 0 has ended
/// iteration j − lead. 1, which keeps the ranks in step, when the plan lets no iteration overlap
/// another (no staleness, no shifts, no order edge over more than one iteration); otherwise one
/// more than staleness and shifts together, so that waiting for rank 0 cannot close a cycle: what
/// rank 0 still needs of others for its iteration lies at most the largest shift ahead of it.
std::int64_t control_lead(const Job& job);

/// Which iterations run, and the reports about them. Rank 0 decides: at the end of its iteration i
/// it sends every rank the word for iteration i + lead, go on or stop. Reports travel to rank 0 as
/// messages; it takes them in iteration order, when those of all ranks are there. With lead 1 rank
/// 0 waits for them before it gives the word, so that a stop ends the run with the iteration in
/// which any rank asked for it; otherwise it waits for those of iteration i − lead, and so never
/// runs far ahead of the others either.
class RunControl {
 public:
  /// Rank 0 calls `on_total` with the reports of all ranks together, in iteration order.
  using OnTotal = std::function<void(std::int64_t iteration, Report total)>;

  /// `group` is of all ranks, and used for nothing else; `planned` iterations; `stop` may be null.
  RunControl(Comm& group,
             std::int64_t lead,
             std::int64_t planned,
             const std::atomic<bool>* stop,
             OnTotal on_total);

  /// Whether iteration `iteration` runs; waits for rank 0's word. Called in ascending order, before
  /// the iteration's first instruction.
  bool start(std::int64_t iteration);
  /// This rank has ended `iteration`.
  void finish(std::int64_t iteration, Report mine);
  /// After the last iteration: rank 0 waits for all reports.
  void drain();

  std::int64_t lead() const { return lead_; }
  /// Longest iteration that rank 0 knew of when it gave the last word, seconds.
  double longest_iteration_s() const { return longest_iteration_s_; }
  /// The run ended early because some rank asked for it.
  bool stopped() const { return stopped_; }

 private:
  /// Merges the reports that are there, and waits for those of iterations up to `needed`.
  void collect(std::int64_t needed);
  void give_word(std::int64_t iteration);

  struct Word {
    std::int64_t iteration = 0;
    double longest_iteration_s = 0.0;
    bool go = true;
  };

  Comm& group_;
  std::int64_t lead_;
  std::int64_t planned_;
  const std::atomic<bool>* stop_;
  OnTotal on_total_;
  std::map<std::int64_t, Report> own_;  ///< rank 0: not yet merged
  std::int64_t next_report_ = 0;        ///< rank 0
  std::optional<Word> last_word_;       ///< rank 0
  std::map<std::int64_t, Word> words_;  ///< rank 0: to itself
  bool stop_wanted_ = false;            ///< rank 0: a report said so
  double longest_seen_s_ = 0.0;         ///< rank 0
  double longest_iteration_s_ = 0.0;
  bool stopped_ = false;
};

}  // namespace rpeg
