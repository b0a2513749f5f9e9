#include "rpeg/trace/export.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "trace/messages.h"

namespace rpeg {
namespace {

constexpr double kMicroseconds = 1e6;

/// Collects the entries of the array `traceEvents`.
class Entries {
 public:
  template <typename... Parts>
  void add(fmt::format_string<Parts...> format, Parts&&... parts) {
    text_ += text_.empty() ? "\n{" : ",\n{";
    fmt::format_to(std::back_inserter(text_), format, std::forward<Parts>(parts)...);
    text_ += '}';
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// What picks out an event: rank, instruction, iteration.
using EventKey = std::tuple<std::int32_t, std::int32_t, std::int64_t>;

int node_of(const Job& job, std::int32_t rank) {
  return job.ranks.at(static_cast<std::size_t>(rank)).node;
}

void add_names(const Job& job, Entries& out) {
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const int node = job.ranks[rank].node;
    out.add(R"("ph":"M","name":"process_name","pid":{0},"args":{{"name":"node {0}"}})", node);
    out.add(R"("ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"rank {}"}})",
            node,
            rank,
            rank);
  }
}

void add_slices(const Job& job, const TraceEvent& event, Entries& out) {
  const int node = node_of(job, event.rank);
  if (event.waited_s > 0.0) {
    out.add(R"("ph":"X","cat":"wait","name":"wait","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f})",
            node,
            event.rank,
            (event.start_s - event.waited_s) * kMicroseconds,
            event.waited_s * kMicroseconds);
  }
  out.add(R"("ph":"X","cat":"{}","name":"{} {}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
          R"("args":{{"iteration":{},"instruction":{},"bytes":{},"peer":{},"version":{}}})",
          event.kind,
          event.kind,
          event.vertex,
          node,
          event.rank,
          event.start_s * kMicroseconds,
          (event.end_s - event.start_s) * kMicroseconds,
          event.iteration,
          event.instruction,
          event.bytes,
          event.peer,
          event.version);
}

/// The version that a computation uses, from its start on; that which training made, from its end.
void add_versions(const Job& job, const TraceEvent& event, Entries& out) {
  const auto& program = job.ranks[static_cast<std::size_t>(event.rank)].program;
  const auto at = static_cast<std::size_t>(event.instruction);
  if (at >= program.size() || event.version < 0 || event.kind == "send_weights" ||
      event.kind == "receive_weights") {
    return;
  }
  const char* model = to_string(job.graph.vertices[index(program[at].vertex)].model);
  const auto count = [&](double time_s, std::int64_t version) {
    out.add(R"("ph":"C","name":"rank {}: {} version","pid":{},"ts":{:.3f},"args":{{"version":{}}})",
            event.rank,
            model,
            node_of(job, event.rank),
            time_s * kMicroseconds,
            version);
  };
  count(event.start_s, event.version);
  if (event.written >= 0) {
    count(event.end_s, event.written);
  }
}

/// An arrow from the middle of the sending slice to the end of the receiving one.
void add_arrow(
    const Job& job, const TraceEvent& sent, const TraceEvent& received, int id, Entries& out) {
  const auto end = [&](const char* phase, const TraceEvent& event, double time_s) {
    out.add(R"("ph":"{}","bp":"e","cat":"message","name":"{}","id":{},"pid":{},"tid":{},)"
            R"("ts":{:.3f})",
            phase,
            event.vertex,
            id,
            node_of(job, event.rank),
            event.rank,
            time_s * kMicroseconds);
  };
  end("s", sent, 0.5 * (sent.start_s + sent.end_s));
  end("f", received, received.end_s);
}

}  // namespace

std::string perfetto_json(const Job& job, const Trace& trace) {
  Entries out;
  add_names(job, out);
  std::map<EventKey, const TraceEvent*> events;
  for (const RankTrace& rank : trace.ranks) {
    for (const TraceEvent& event : rank.events) {
      if (event.rank < 0 || static_cast<std::size_t>(event.rank) >= job.ranks.size() ||
          event.instruction < 0) {
        continue;  // of another job; --check-trace tells
      }
      add_slices(job, event, out);
      add_versions(job, event, out);
      events[{event.rank, event.instruction, event.iteration}] = &event;
    }
  }
  int id = 0;
  for (const MessagePair& pair : message_pairs(job)) {
    const EventKey first{pair.from, static_cast<std::int32_t>(pair.send), 0};
    for (auto sent = events.lower_bound(first);
         sent != events.end() && sent->second->rank == pair.from &&
         sent->second->instruction == static_cast<std::int32_t>(pair.send);
         ++sent) {
      const auto received = events.find(
          {pair.to, static_cast<std::int32_t>(pair.receive), sent->second->iteration + pair.delta});
      if (received != events.end()) {
        add_arrow(job, *sent->second, *received->second, ++id, out);
      }
    }
  }
  return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[" + out.text() + "\n]}\n";
}

}  // namespace rpeg
