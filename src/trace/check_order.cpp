#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "rpeg/job/tasks.h"
#include "trace/check_context.h"

namespace rpeg {
namespace {

/// What of an event contradicts its instruction, or "".
std::string contradiction(const CheckContext& context, const TraceEvent& event) {
  const Instruction& instruction = context.instruction(event);
  const std::string kind = to_string(instruction.kind);
  const std::string task = task_of(context.job, instruction);
  if (event.kind != kind || event.vertex != task) {
    return fmt::format("the program has {} {} there", kind, task);
  }
  const int peer = is_compute(instruction.kind) ? -1 : instruction.peer;
  if (event.peer != peer) {
    return fmt::format("its peer is rank {} in the program", peer);
  }
  const bool has_times = std::isfinite(event.start_s) && std::isfinite(event.end_s) &&
                         std::isfinite(event.waited_s) && event.waited_s >= 0.0;
  if (!has_times || event.start_s > event.end_s) {
    return "it ends before it starts, or has no finite times";
  }
  return "";
}

/// Files events of one rank by instruction and iteration; what cannot be filed is a violation.
void file_events(CheckContext& context, int rank) {
  const RankTrace& trace = *context.ranks[static_cast<std::size_t>(rank)];
  const std::size_t instructions = context.program(rank).size();
  auto& table = context.events[static_cast<std::size_t>(rank)];
  for (const TraceEvent& event : trace.events) {
    if (event.rank != rank) {
      context.add("rank", fmt::format("in the trace of rank {}: {}", rank, event_text(event)));
      continue;
    }
    if (event.instruction < 0 || static_cast<std::size_t>(event.instruction) >= instructions) {
      context.add("program",
                  fmt::format("{}: the program of rank {} has {} instructions",
                              event_text(event),
                              rank,
                              instructions));
      continue;
    }
    const std::int64_t last = last_iteration(context, context.instruction(event));
    if (event.iteration < context.first || event.iteration >= last) {
      context.add(
          "once",
          fmt::format(
              "{}: the run has iterations {} to {}", event_text(event), context.first, last - 1));
      continue;
    }
    const std::string wrong = contradiction(context, event);
    if (!wrong.empty()) {
      context.add("program", fmt::format("{}: {}", event_text(event), wrong));
    }
    const auto row = static_cast<std::size_t>(event.iteration - context.first);
    const TraceEvent*& place =
        table[row * instructions + static_cast<std::size_t>(event.instruction)];
    if (place != nullptr) {
      context.add("once",
                  fmt::format("it ran twice: {}; and {}", event_text(*place), event_text(event)));
    }
    place = &event;
  }
}

void check_complete(CheckContext& context, int rank) {
  const std::vector<Instruction>& program = context.program(rank);
  for (std::size_t i = 0; i < program.size(); ++i) {
    const std::int64_t last = last_iteration(context, program[i]);
    for (std::int64_t iteration = context.first; iteration < last; ++iteration) {
      if (context.event(rank, i, iteration) == nullptr) {
        context.add("once",
                    fmt::format("rank {}, instruction {} ({} {}) did not run in iteration {}",
                                rank,
                                i,
                                to_string(program[i].kind),
                                task_of(context.job, program[i]),
                                iteration));
      }
    }
  }
}

/// In period p of the program an instruction runs for iteration p − shift. What is drained comes
/// last, in any order.
bool is_in_order(const CheckContext& context, const TraceEvent& before, const TraceEvent& event) {
  if (event.iteration >= context.last) {
    return true;
  }
  const auto place = [&](const TraceEvent& at) {
    return std::pair(at.iteration + context.instruction(at).shift, at.instruction);
  };
  return before.iteration < context.last && place(before) < place(event);
}

void check_sequence(CheckContext& context, int rank) {
  const TraceEvent* before = nullptr;
  const auto instructions = static_cast<std::int32_t>(context.program(rank).size());
  for (const TraceEvent& event : context.ranks[static_cast<std::size_t>(rank)]->events) {
    if (event.rank != rank || event.instruction < 0 || event.instruction >= instructions) {
      continue;
    }
    if (before != nullptr) {
      if (!is_in_order(context, *before, event)) {
        context.add("order",
                    fmt::format("not in the order of the program: {}; then {}",
                                event_text(*before),
                                event_text(event)));
      }
      // Negated, so that a time that is no number counts.
      if (!(event.start_s - event.waited_s >= before->end_s - kTraceRounding_s)) {
        context.add("overlap",
                    fmt::format("rank {} did two things at once: {}; and, reached after {:.9f} s "
                                "of waiting, {}",
                                rank,
                                event_text(*before),
                                event.waited_s,
                                event_text(event)));
      }
    }
    before = &event;
  }
}

}  // namespace

void check_order(CheckContext& context) {
  const auto iterations = static_cast<std::size_t>(context.drained - context.first);
  context.events.resize(context.job.ranks.size());
  for (std::size_t rank = 0; rank < context.job.ranks.size(); ++rank) {
    context.events[rank].assign(iterations * context.job.ranks[rank].program.size(), nullptr);
    if (context.ranks[rank] != nullptr) {
      file_events(context, static_cast<int>(rank));
      check_complete(context, static_cast<int>(rank));
      check_sequence(context, static_cast<int>(rank));
    }
  }
}

}  // namespace rpeg
