#include "rpeg/trace/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"

namespace rpeg {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kPrefix = "rank_";
constexpr std::string_view kSuffix = ".jsonl";

TraceEvent parse_event(const std::string& line, const std::string& where) {
  TraceEvent event;
  try {
    const Json json = Json::parse(line);
    json.at("iteration").get_to(event.iteration);
    json.at("rank").get_to(event.rank);
    json.at("instruction").get_to(event.instruction);
    json.at("kind").get_to(event.kind);
    json.at("vertex").get_to(event.vertex);
    json.at("start_s").get_to(event.start_s);
    json.at("end_s").get_to(event.end_s);
    json.at("bytes").get_to(event.bytes);
    json.at("peer").get_to(event.peer);
    json.at("version").get_to(event.version);
  } catch (const Json::exception& error) {
    throw Error(ErrorKind::kTrace, fmt::format("broken trace event: {}", error.what()), where);
  }
  return event;
}

/// The rank in a file name "rank_7.jsonl", or -1.
int rank_of(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) {
    return -1;
  }
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size() - kSuffix.size();
  int rank = -1;
  const auto result = std::from_chars(begin, end, rank);
  return result.ec == std::errc() && result.ptr == end ? rank : -1;
}

}  // namespace

TraceWriter::TraceWriter(const std::filesystem::path& directory, int rank)
    : path_(directory / fmt::format("{}{}{}", kPrefix, rank, kSuffix)) {
  ensure_directory(directory);
  out_.open(path_, std::ios::trunc);
  if (!out_) {
    throw Error(ErrorKind::kUsage, fmt::format("cannot write trace file {}", path_.string()));
  }
}

void TraceWriter::add(const TraceEvent& event) {
  // One format string instead of a JSON object: tracing must stay far below 1 % of the run.
  out_ << fmt::format(R"({{"iteration":{},"rank":{},"instruction":{},"kind":"{}","vertex":"{}",)"
                      R"("start_s":{:.9f},"end_s":{:.9f},"bytes":{},"peer":{},"version":{}}})"
                      "\n",
                      event.iteration,
                      event.rank,
                      event.instruction,
                      event.kind,
                      event.vertex,
                      event.start_s,
                      event.end_s,
                      event.bytes,
                      event.peer,
                      event.version);
}

void TraceWriter::close() {
  out_.close();
  if (!out_) {
    throw Error(ErrorKind::kRuntime,
                fmt::format("cannot write trace file {}: is the disk full?", path_.string()));
  }
}

std::vector<TraceEvent> load_trace(const std::filesystem::path& directory) {
  std::vector<std::pair<int, std::filesystem::path>> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const int rank = rank_of(entry.path());
    if (rank >= 0) {
      files.emplace_back(rank, entry.path());
    }
  }
  if (files.empty()) {
    throw Error(ErrorKind::kTrace,
                fmt::format("no rank_<r>.jsonl in trace directory {}", directory.string()));
  }
  std::sort(files.begin(), files.end());
  std::vector<TraceEvent> events;
  for (const auto& [rank, path] : files) {
    std::ifstream in(path);
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      events.push_back(parse_event(line, fmt::format("{}:{}", path.string(), number)));
    }
  }
  return events;
}

}  // namespace rpeg
