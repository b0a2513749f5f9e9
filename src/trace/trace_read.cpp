#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <system_error>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/trace/trace.h"
#include "trace/lines.h"

namespace rpeg {
namespace {

/// Reads a line of the writer's fixed form from left to right; the first surprise fails all that
/// follows.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) {}

  Cursor& literal(std::string_view expected) {
    if (ok_ && rest_.starts_with(expected)) {
      rest_.remove_prefix(expected.size());
    } else {
      ok_ = false;
    }
    return *this;
  }
  /// `"name":` behind a comma.
  Cursor& key(std::string_view name) { return literal(",\"").literal(name).literal("\":"); }

  template <typename Number>
  Cursor& number(Number* value) {
    if (ok_) {
      const char* end = rest_.data() + rest_.size();
      const auto [at, error] = std::from_chars(rest_.data(), end, *value);
      ok_ = error == std::errc();
      rest_.remove_prefix(static_cast<std::size_t>(at - rest_.data()));
    }
    return *this;
  }
  Cursor& text(std::string* value) {
    literal("\"");
    const std::size_t end = rest_.find('"');
    if (ok_ && end != std::string_view::npos) {
      value->assign(rest_.substr(0, end));
      rest_.remove_prefix(end + 1);
    } else {
      ok_ = false;
    }
    return *this;
  }
  bool peek(char c) const { return ok_ && !rest_.empty() && rest_.front() == c; }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

void read_clock(Cursor& in, ClockSample* clock) {
  in.key("at_s").number(&clock->at_s);
  in.key("offset_s").number(&clock->offset_s);
  in.key("error_s").number(&clock->error_s);
}

void read_event(Cursor& in, TraceEvent* event) {
  in.key("iteration").number(&event->iteration);
  in.key("rank").number(&event->rank);
  in.key("instruction").number(&event->instruction);
  in.key("kind").text(&event->kind);
  in.key("vertex").text(&event->vertex);
  in.key("start_s").number(&event->start_s);
  in.key("end_s").number(&event->end_s);
  in.key("bytes").number(&event->bytes);
  in.key("peer").number(&event->peer);
  in.key("version").number(&event->version);
  in.key("written").number(&event->written);
  in.key("waited_s").number(&event->waited_s);
}

void read_rollout(Cursor& in, TracedRollouts* rollout) {
  in.key("iteration").number(&rollout->iteration);
  in.key("rank").number(&rollout->rank);
  in.key("instruction").number(&rollout->instruction);
  in.key("verifier_s").number(&rollout->verifier_s);
  in.key("sequences").literal("[");
  while (in.peek('[') || in.peek(',')) {
    TracedSequence entry;
    in.literal(rollout->sequences.empty() ? "[" : ",[").number(&entry.sequence);
    in.literal(",").number(&entry.prompt_tokens);
    in.literal(",").number(&entry.response_tokens).literal("]");
    rollout->sequences.push_back(entry);
  }
  in.literal("]");
}

/// Reads one file; faults go to `faults_`.
class FileReader {
 public:
  FileReader(const std::filesystem::path& path, int rank, std::vector<TraceViolation>* faults)
      : path_(path.string()), faults_(faults) {
    trace_.rank = rank;
  }

  RankTrace read() {
    const std::string content = read_file(path_);
    std::string_view rest = content;
    bool is_cut = false;
    while (!rest.empty() && !is_cut) {
      const std::size_t end = rest.find('\n');
      is_cut = end == std::string_view::npos;  // the rank was killed while it wrote
      if (!is_cut) {
        ++line_;
        read_line(rest.substr(0, end));
        rest.remove_prefix(end + 1);
      }
    }
    if (!trace_.complete) {
      fault(
          fmt::format("the trace of rank {} is not complete: {}; the run was killed, or lines "
                      "were cut off",
                      trace_.rank,
                      is_cut ? "it breaks off inside a line" : "it has no end record"));
    } else if (is_cut) {
      fault("it goes on behind its end record");
    }
    correct_times();
    return std::move(trace_);
  }

 private:
  void fault(const std::string& what) {
    faults_->push_back({"file", fmt::format("{}:{}: {}", path_, line_, what)});
  }

  void read_line(std::string_view line) {
    const std::optional<std::string_view> body = verified(line);
    if (!body) {
      return;
    }
    Cursor in(*body);
    std::int64_t number = -1;
    std::string record;
    in.literal("{\"n\":").number(&number).key("record").text(&record);
    if (in.ok() && number != next_) {
      fault(fmt::format(
          "line number {} where {} was due: a line was removed, added or moved", number, next_));
    } else if (in.ok() && !is_intact_) {
      fault("the line or the one before it was altered: its checksum does not fit");
    }
    next_ = number + 1;
    if (!in.ok() || !read_record(in, record)) {
      fault("no record of a trace: " + std::string(*body));
    }
  }

  /// The line without its checksum, which `is_intact_` tells to fit or not.
  std::optional<std::string_view> verified(std::string_view line) {
    const std::size_t tail = kSumField.size() + kSumDigits + 2;
    std::uint64_t written = 0;
    if (line.size() >= tail) {
      Cursor digits(line.substr(line.size() - tail));
      std::string sum;
      digits.literal(kSumField.substr(0, kSumField.size() - 1)).text(&sum).literal("}");
      const bool is_hex = sum.find_first_not_of("0123456789abcdef") == std::string::npos;
      if (digits.done() && is_hex) {
        std::from_chars(sum.data(), sum.data() + sum.size(), written, 16);
        const std::string_view body = line.substr(0, line.size() - tail);
        is_intact_ = trace_checksum(checksum_, body) == written;
        checksum_ = written;
        return body;
      }
    }
    fault("no line of a trace: it does not end with a checksum");
    ++next_;
    return std::nullopt;
  }

  bool read_record(Cursor& in, const std::string& record) {
    if (trace_.complete) {
      fault("a record behind the end record");
    }
    if ((record == "start") != !has_start_) {
      fault(has_start_ ? "a second start record" : "the first line is not a start record");
    }
    has_start_ = true;
    if (record == "start") {
      return read_start(in);
    }
    if (record == "event") {
      read_event(in, &trace_.events.emplace_back());
      return in.done();
    }
    if (record == "rollout") {
      read_rollout(in, &trace_.rollouts.emplace_back());
      return in.done();
    }
    return record == "end" && read_end(in);
  }

  bool read_start(Cursor& in) {
    std::string format;
    std::int32_t rank = -1;
    in.key("format").text(&format);
    in.key("rank").number(&rank);
    in.key("ranks").number(&trace_.ranks);
    in.key("plan").text(&trace_.plan_digest);
    read_clock(in, &start_);
    if (in.done() && format != kTraceFormat) {
      fault(fmt::format("format {}, expected {}", format, kTraceFormat));
    }
    if (in.done() && rank != trace_.rank) {
      fault(fmt::format("the trace of rank {} in the file of rank {}", rank, trace_.rank));
    }
    return in.done();
  }

  bool read_end(Cursor& in) {
    std::size_t events = 0;
    std::size_t rollouts = 0;
    in.key("events").number(&events);
    in.key("rollouts").number(&rollouts);
    read_clock(in, &end_);
    trace_.complete = in.done();
    if (in.done() && (events != trace_.events.size() || rollouts != trace_.rollouts.size())) {
      fault(fmt::format("the end record counts {} events and {} rollouts, the file has {} and {}",
                        events,
                        rollouts,
                        trace_.events.size(),
                        trace_.rollouts.size()));
    }
    return in.done();
  }

  /// The offset drifts evenly between its two measurements.
  void correct_times() {
    trace_.clock_error_s = std::max(start_.error_s, end_.error_s);
    const double span_s = end_.at_s - start_.at_s;
    if (!trace_.complete || span_s <= 0.0 || end_.offset_s == start_.offset_s) {
      return;
    }
    const double drift = (end_.offset_s - start_.offset_s) / span_s;
    for (TraceEvent& event : trace_.events) {
      const auto corrected = [&](double t) { return t + drift * (t - start_.at_s); };
      const double reached_s = corrected(event.start_s - event.waited_s);
      event.start_s = corrected(event.start_s);
      event.end_s = corrected(event.end_s);
      event.waited_s = std::max(0.0, event.start_s - reached_s);
    }
  }

  std::string path_;
  std::vector<TraceViolation>* faults_;
  RankTrace trace_;
  ClockSample start_;
  ClockSample end_;
  std::int64_t line_ = 0;
  std::int64_t next_ = 0;
  std::uint64_t checksum_ = 0;
  bool is_intact_ = true;
  bool has_start_ = false;
};

/// The rank in a file name "rank_7.jsonl", or -1.
int rank_of(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kTracePrefix) || !name.ends_with(kTraceSuffix)) {
    return -1;
  }
  const char* begin = name.data() + kTracePrefix.size();
  const char* end = name.data() + name.size() - kTraceSuffix.size();
  int rank = -1;
  const auto result = std::from_chars(begin, end, rank);
  return result.ec == std::errc() && result.ptr == end ? rank : -1;
}

}  // namespace

Trace load_trace(const std::filesystem::path& directory) {
  std::vector<std::pair<int, std::filesystem::path>> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const int rank = rank_of(entry.path());
    if (rank >= 0) {
      files.emplace_back(rank, entry.path());
    }
  }
  if (files.empty()) {
    throw Error(ErrorKind::kUsage,
                fmt::format("no trace in {}: expected files rank_<r>.jsonl, which rpeg-run writes "
                            "into runtime.trace.dir",
                            directory.string()));
  }
  std::sort(files.begin(), files.end());
  Trace trace;
  for (const auto& [rank, path] : files) {
    trace.ranks.push_back(FileReader(path, rank, &trace.faults).read());
  }
  return trace;
}

std::vector<TraceEvent> all_events(const Trace& trace) {
  std::vector<TraceEvent> events;
  for (const RankTrace& rank : trace.ranks) {
    events.insert(events.end(), rank.events.begin(), rank.events.end());
  }
  return events;
}

}  // namespace rpeg
