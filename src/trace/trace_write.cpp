#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/trace/trace.h"
#include "trace/lines.h"

namespace rpeg {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;

/// Names of vertices and kinds stand between quotes as they are.
void check_plain(std::string_view text) {
  for (const char c : text) {
    check(c >= ' ' && c != '"' && c != '\\', "trace: a name that needs escaping");
  }
}

template <typename... Parts>
void append(std::string* out, fmt::format_string<Parts...> format, Parts&&... parts) {
  fmt::format_to(std::back_inserter(*out), format, std::forward<Parts>(parts)...);
}

void append_clock(std::string* out, const ClockSample& clock) {
  append(out,
         R"(,"at_s":{:.9f},"offset_s":{:.9f},"error_s":{:.9f})",
         clock.at_s,
         clock.offset_s,
         clock.error_s);
}

void check_written(const std::ofstream& out, const std::filesystem::path& path) {
  if (!out) {
    throw Error(ErrorKind::kRuntime,
                fmt::format("cannot write trace file {}: is the disk full? Free some space, or "
                            "remove runtime.trace from job.yaml to run without a trace",
                            path.string()));
  }
}

}  // namespace

std::uint64_t trace_checksum(std::uint64_t before, std::string_view line) {
  constexpr std::uint64_t kPrime = 1099511628211U;
  std::uint64_t hash = 14695981039346656037U;
  const auto mix = [&](unsigned char byte) { hash = (hash ^ byte) * kPrime; };
  for (int i = 0; i < 8; ++i) {
    mix(static_cast<unsigned char>(before >> (8 * i)));
  }
  for (const char c : line) {
    mix(static_cast<unsigned char>(c));
  }
  return hash;
}

TraceWriter::TraceWriter(const std::filesystem::path& directory, const TraceStart& start)
    : path_(directory / fmt::format("{}{}{}", kTracePrefix, start.rank, kTraceSuffix)) {
  ensure_directory(directory);
  out_.open(path_, std::ios::trunc | std::ios::binary);
  if (!out_) {
    throw Error(ErrorKind::kUsage, fmt::format("cannot write trace file {}", path_.string()));
  }
  check_plain(start.plan_digest);
  buffer_.reserve(kBufferBytes + 4096);
  append(&buffer_,
         R"({{"n":{},"record":"start","format":"{}","rank":{},"ranks":{},"plan":"{}")",
         line_,
         kTraceFormat,
         start.rank,
         start.ranks,
         start.plan_digest);
  append_clock(&buffer_, start.clock);
  finish_line();
  write_buffer();  // so that a run that dies leaves a file that says whose it is
}

void TraceWriter::add(const TraceEvent& event) {
  check_plain(event.kind);
  check_plain(event.vertex);
  append(&buffer_,
         R"({{"n":{},"record":"event","iteration":{},"rank":{},"instruction":{},"kind":"{}",)"
         R"("vertex":"{}","start_s":{:.9f},"end_s":{:.9f},"bytes":{},"peer":{},"version":{},)"
         R"("written":{},"waited_s":{:.9f})",
         line_,
         event.iteration,
         event.rank,
         event.instruction,
         event.kind,
         event.vertex,
         event.start_s,
         event.end_s,
         event.bytes,
         event.peer,
         event.version,
         event.written,
         event.waited_s);
  ++events_;
  finish_line();
}

void TraceWriter::add(const TracedRollouts& rollout) {
  append(&buffer_,
         R"({{"n":{},"record":"rollout","iteration":{},"rank":{},"instruction":{},)"
         R"("verifier_s":{:.9f},"sequences":[)",
         line_,
         rollout.iteration,
         rollout.rank,
         rollout.instruction,
         rollout.verifier_s);
  for (std::size_t i = 0; i < rollout.sequences.size(); ++i) {
    const TracedSequence& entry = rollout.sequences[i];
    append(&buffer_,
           "{}[{},{},{}]",
           i == 0 ? "" : ",",
           entry.sequence,
           entry.prompt_tokens,
           entry.response_tokens);
  }
  buffer_ += ']';
  ++rollouts_;
  finish_line();
}

void TraceWriter::close(const ClockSample& end) {
  append(
      &buffer_, R"({{"n":{},"record":"end","events":{},"rollouts":{})", line_, events_, rollouts_);
  append_clock(&buffer_, end);
  finish_line();
  write_buffer();
  out_.close();
  check_written(out_, path_);
}

/// Adds the checksum of the line that began at `line_begin_`.
void TraceWriter::finish_line() {
  checksum_ = trace_checksum(checksum_, std::string_view(buffer_).substr(line_begin_));
  append(&buffer_, "{}{:016x}\"}}\n", kSumField, checksum_);
  bytes_ += static_cast<std::int64_t>(buffer_.size() - line_begin_);
  line_begin_ = buffer_.size();
  ++line_;
  if (buffer_.size() >= kBufferBytes) {
    write_buffer();
  }
}

void TraceWriter::write_buffer() {
  out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  out_.flush();
  buffer_.clear();
  line_begin_ = 0;
  check_written(out_, path_);
}

void save_trace(const Trace& trace, const std::filesystem::path& directory) {
  for (const RankTrace& rank : trace.ranks) {
    const ClockSample clock{.at_s = 0.0, .offset_s = 0.0, .error_s = rank.clock_error_s};
    TraceWriter writer(directory, {rank.rank, rank.ranks, rank.plan_digest, clock});
    for (const TraceEvent& event : rank.events) {
      writer.add(event);
    }
    for (const TracedRollouts& rollout : rank.rollouts) {
      writer.add(rollout);
    }
    writer.close(clock);
  }
}

}  // namespace rpeg
