#include "rpeg/trace/check_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "rpeg/job/tasks.h"
#include "trace/check_context.h"

namespace rpeg {
namespace {

constexpr std::size_t kShown = 50;
/// A clock that is known less well proves nothing about the order of messages.
constexpr double kLargestClockError_s = 0.05;

/// Finds each rank's file, and what the files say about the run.
void check_files(CheckContext& context) {
  const auto needed = static_cast<std::int32_t>(context.job.ranks.size());
  context.ranks.assign(context.job.ranks.size(), nullptr);
  for (const RankTrace& rank : context.trace.ranks) {
    if (rank.rank >= needed) {
      context.add("file", fmt::format("a trace of rank {}; the job has {}", rank.rank, needed));
      continue;
    }
    context.ranks[static_cast<std::size_t>(rank.rank)] = &rank;
    if (rank.ranks != needed) {
      context.add("file",
                  fmt::format("the trace of rank {} is of a run on {} ranks; the job has {}",
                              rank.rank,
                              rank.ranks,
                              needed));
    }
    if (rank.plan_digest != context.job.plan_digest) {
      context.add("file",
                  fmt::format("the trace of rank {} is of another plan, {}; the job's is {}",
                              rank.rank,
                              rank.plan_digest,
                              context.job.plan_digest));
    }
    if (!(rank.clock_error_s >= 0.0 && rank.clock_error_s <= kLargestClockError_s)) {
      context.add("clock",
                  fmt::format("the clock of rank {} is known within {} s only; {} s would do",
                              rank.rank,
                              rank.clock_error_s,
                              kLargestClockError_s));
    }
  }
  for (std::int32_t rank = 0; rank < needed; ++rank) {
    if (context.ranks[static_cast<std::size_t>(rank)] == nullptr) {
      context.add("file", fmt::format("there is no trace of rank {}", rank));
    }
  }
}

/// The iterations that any rank ran.
void find_iterations(CheckContext& context) {
  context.first = std::numeric_limits<std::int64_t>::max();
  context.last = 0;
  for (const RankTrace& rank : context.trace.ranks) {
    for (const TraceEvent& event : rank.events) {
      context.first = std::min(context.first, event.iteration);
      if (event.kind != to_string(InstructionKind::kReceiveWeights)) {
        context.last = std::max(context.last, event.iteration + 1);
      }
    }
  }
  context.drained = context.last;
  for (const WeightTransfer& transfer : context.job.transfers) {
    context.drained = std::max(context.drained, context.last + transfer.delta);
  }
}

/// An altered iteration number must not make the tables grow without bound.
bool has_plausible_iterations(const CheckContext& context) {
  std::size_t events = 0;
  for (const RankTrace& rank : context.trace.ranks) {
    events += rank.events.size();
  }
  return context.first >= 0 && context.last > context.first &&
         static_cast<std::size_t>(context.last - context.first) <= events;
}

}  // namespace

const TraceEvent* CheckContext::event(int rank,
                                      std::size_t instruction,
                                      std::int64_t iteration) const {
  if (iteration < first || iteration >= drained) {
    return nullptr;
  }
  const auto row = static_cast<std::size_t>(iteration - first);
  return events[static_cast<std::size_t>(rank)][row * program(rank).size() + instruction];
}

const TracedRollouts* CheckContext::rollout(int rank,
                                            std::size_t instruction,
                                            std::int64_t iteration) const {
  if (iteration < first || iteration >= drained) {
    return nullptr;
  }
  const auto row = static_cast<std::size_t>(iteration - first);
  return rollouts[static_cast<std::size_t>(rank)][row * program(rank).size() + instruction];
}

std::optional<std::size_t> CheckContext::compute_instruction(int rank, VertexId vertex) const {
  const std::vector<Instruction>& mine = program(rank);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    if (is_compute(mine[i].kind) && mine[i].vertex == vertex) {
      return i;
    }
  }
  return std::nullopt;
}

double CheckContext::tolerance_s(int a, int b) const {
  const RankTrace* first_rank = ranks[static_cast<std::size_t>(a)];
  const RankTrace* second_rank = ranks[static_cast<std::size_t>(b)];
  if (a == b || first_rank == nullptr || second_rank == nullptr) {
    return kTraceRounding_s;
  }
  return clock_tolerance_s(*first_rank, *second_rank);
}

std::int64_t last_iteration(const CheckContext& context, const Instruction& instruction) {
  if (instruction.kind != InstructionKind::kReceiveWeights) {
    return context.last;
  }
  return context.last + context.job.transfers[static_cast<std::size_t>(instruction.transfer)].delta;
}

bool has_slots(const Job& job, const Instruction& instruction) {
  return job.graph.vertices[index(instruction.vertex)].stage > 0;
}

bool is_compute(InstructionKind kind) {
  return kind == InstructionKind::kGenerate || kind == InstructionKind::kInfer ||
         kind == InstructionKind::kTrain;
}

std::string event_text(const TraceEvent& event) {
  const std::string peer = event.peer >= 0 ? fmt::format(", peer {}", event.peer) : "";
  return fmt::format("rank {}, instruction {} ({} {}{}) of iteration {}, {:.9f} s to {:.9f} s",
                     event.rank,
                     event.instruction,
                     event.kind,
                     event.vertex,
                     peer,
                     event.iteration,
                     event.start_s,
                     event.end_s);
}

double clock_tolerance_s(const RankTrace& a, const RankTrace& b) {
  return a.clock_error_s + b.clock_error_s + kTraceRounding_s;
}

std::vector<TraceViolation> check_trace(const Job& job, const Trace& trace) {
  std::vector<TraceViolation> violations = trace.faults;
  CheckContext context{.job = job,
                       .trace = trace,
                       .violations = violations,
                       .first = 0,
                       .last = 0,
                       .drained = 0,
                       .ranks = {},
                       .events = {},
                       .rollouts = {},
                       .sequences = {}};
  check_files(context);
  find_iterations(context);
  if (!has_plausible_iterations(context)) {
    context.add("once",
                fmt::format("there are events of iterations {} to {}, but not of all between",
                            context.first,
                            context.last - 1));
    return violations;
  }
  check_order(context);
  check_rollouts(context);
  check_causality(context);
  check_messages(context);
  check_versions(context);
  return violations;
}

std::string violations_text(const std::vector<TraceViolation>& violations) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, violations.size()); ++i) {
    text += fmt::format("{}: {}\n", violations[i].rule, violations[i].message);
  }
  if (violations.size() > kShown) {
    text += fmt::format("and {} more\n", violations.size() - kShown);
  }
  return text;
}

}  // namespace rpeg
