#include "rpeg/trace/analysis.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>

namespace rpeg {
namespace {

bool is_compute(std::string_view kind) {
  return kind == "generate" || kind == "infer" || kind == "train";
}

/// Messages of data belong to no task: sending takes no time, receiving is waiting for the
/// producer.
bool is_data_message(std::string_view kind) { return kind == "send" || kind == "receive"; }

struct Span {
  double begin_s = std::numeric_limits<double>::infinity();
  double end_s = -std::numeric_limits<double>::infinity();
  void add(double from_s, double to_s) {
    begin_s = std::min(begin_s, from_s);
    end_s = std::max(end_s, to_s);
  }
};

/// Seconds of [from, to] inside a span.
double inside(const Span& span, double from_s, double to_s) {
  return std::max(0.0, std::min(to_s, span.end_s) - std::max(from_s, span.begin_s));
}

/// First start and seconds of every task: by iteration, then rank.
struct TaskSeconds {
  double first_start_s = std::numeric_limits<double>::infinity();
  std::map<std::int64_t, std::map<std::int32_t, double>> seconds;
};

std::vector<TaskTimes> task_times(const Trace& trace) {
  std::map<std::string, TaskSeconds> tasks;
  for (const RankTrace& rank : trace.ranks) {
    for (const TraceEvent& event : rank.events) {
      if (is_data_message(event.kind)) {
        continue;
      }
      TaskSeconds& task = tasks[event.vertex];
      task.first_start_s = std::min(task.first_start_s, event.start_s);
      task.seconds[event.iteration][rank.rank] += event.end_s - event.start_s;
    }
  }
  std::vector<std::pair<double, TaskTimes>> ordered;
  for (const auto& [name, task] : tasks) {
    TaskTimes times{.task = name, .seconds = {}};
    for (const auto& [iteration, ranks] : task.seconds) {
      double slowest = 0.0;
      for (const auto& [rank, seconds] : ranks) {
        slowest = std::max(slowest, seconds);
      }
      times.seconds.push_back(slowest);
    }
    ordered.emplace_back(task.first_start_s, std::move(times));
  }
  std::ranges::stable_sort(ordered, {}, [](const auto& entry) { return entry.first; });
  std::vector<TaskTimes> result;
  for (auto& [start_s, times] : ordered) {
    result.push_back(std::move(times));
  }
  return result;
}

/// Of every iteration: from its first reached instruction to its last end, over all ranks.
std::map<std::int64_t, Span> iteration_spans(const Trace& trace) {
  std::map<std::int64_t, Span> spans;
  for (const RankTrace& rank : trace.ranks) {
    for (const TraceEvent& event : rank.events) {
      spans[event.iteration].add(event.start_s - event.waited_s, event.end_s);
    }
  }
  return spans;
}

RankUse rank_use(const RankTrace& rank, const Span& window) {
  RankUse use{.rank = rank.rank};
  const double total_s = window.end_s - window.begin_s;
  if (total_s <= 0.0) {
    return use;
  }
  for (const TraceEvent& event : rank.events) {
    const double seconds = inside(window, event.start_s, event.end_s);
    (is_compute(event.kind) ? use.busy : use.moving) += seconds / total_s;
    use.waiting += inside(window, event.start_s - event.waited_s, event.start_s) / total_s;
  }
  return use;
}

}  // namespace

TraceAnalysis analyse_trace(const Trace& trace) {
  TraceAnalysis analysis;
  const std::map<std::int64_t, Span> spans = iteration_spans(trace);
  if (spans.empty()) {
    return analysis;
  }
  analysis.tasks = task_times(trace);
  double before_s = spans.begin()->second.begin_s;
  for (const auto& [iteration, span] : spans) {
    analysis.iteration_s.push_back(span.end_s - before_s);
    before_s = span.end_s;
  }
  const Span& first = spans.begin()->second;
  const Span window{.begin_s = spans.size() > 1 ? first.end_s : first.begin_s, .end_s = before_s};
  double verifier_s = 0.0;
  for (const RankTrace& rank : trace.ranks) {
    analysis.ranks.push_back(rank_use(rank, window));
    for (const TracedRollouts& rollout : rank.rollouts) {
      verifier_s += rollout.verifier_s;
      for (const TracedSequence& sequence : rollout.sequences) {
        analysis.response_tokens.push_back(sequence.response_tokens);
      }
    }
  }
  if (!analysis.response_tokens.empty()) {
    analysis.verifier_s = verifier_s / static_cast<double>(analysis.response_tokens.size());
  }
  return analysis;
}

}  // namespace rpeg
