#pragma once

/// What the rules of check_trace share: the events of a trace by rank, instruction and iteration,
/// the lengths of its sequences, and how events are named in messages.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rpeg/job/job.h"
#include "rpeg/trace/trace.h"

namespace rpeg {

/// Times are written in nanoseconds; corrections and differences of them round a few times more.
inline constexpr double kTraceRounding_s = 1e-8;

struct CheckContext {
  const Job& job;
  const Trace& trace;
  std::vector<TraceViolation>& violations;
  std::int64_t first = 0;  ///< iterations [first, last) of the run
  std::int64_t last = 0;
  /// Weights that were made in the last iterations arrive afterwards: receives of weights go on
  /// until here. Tables have rows for iterations [first, drained).
  std::int64_t drained = 0;
  std::vector<const RankTrace*> ranks;  ///< by rank; nullptr: no file
  /// [rank][(iteration − first) · instructions + instruction]; nullptr: missing. Their instructions
  /// exist, their kinds and tasks may be wrong.
  std::vector<std::vector<const TraceEvent*>> events;
  std::vector<std::vector<const TracedRollouts*>> rollouts;       ///< the same of rollout records
  std::vector<std::map<std::int64_t, TracedSequence>> sequences;  ///< [iteration − first], by id

  const std::vector<Instruction>& program(int rank) const {
    return job.ranks[static_cast<std::size_t>(rank)].program;
  }
  const Instruction& instruction(const TraceEvent& event) const {
    return program(event.rank)[static_cast<std::size_t>(event.instruction)];
  }
  /// The event of an instruction in an iteration; nullptr when there is none.
  const TraceEvent* event(int rank, std::size_t instruction, std::int64_t iteration) const;
  const TracedRollouts* rollout(int rank, std::size_t instruction, std::int64_t iteration) const;
  /// The instruction of a rank's program that computes a vertex; nothing when it does not.
  std::optional<std::size_t> compute_instruction(int rank, VertexId vertex) const;
  double tolerance_s(int a, int b) const;

  void add(const char* rule, const std::string& message) { violations.push_back({rule, message}); }
};

bool is_compute(InstructionKind kind);
/// Iterations [first, result) are those in which an instruction runs.
std::int64_t last_iteration(const CheckContext& context, const Instruction& instruction);
/// Whether the instruction is about slots of a stage, not about sequences by number.
bool has_slots(const Job& job, const Instruction& instruction);

/// "rank 3, instruction 7 (receive g_pi from rank 1) of iteration 4, 1.203114000 s to 1.204000000
/// s"
std::string event_text(const TraceEvent& event);

/// The sequences that an instruction is about in an iteration, as far as the trace records which
/// they are: those of its ranges, or those in its slots. Nothing when some of them are not
/// recorded.
std::optional<std::vector<TracedSequence>> sequences_of(const CheckContext& context,
                                                        const Instruction& instruction,
                                                        std::int64_t iteration);

// The rules, each a file.

/// Fills `events` and `rollouts`: every event is what its instruction says, and each instruction
/// ran once an iteration; events of a rank follow its program and do not overlap.
void check_order(CheckContext& context);
/// What was generated: every sequence once, by the rank and in the stage that the job says.
void check_rollouts(CheckContext& context);
/// Ranks that compute together were inside at the same time; consumers start after producers.
void check_causality(CheckContext& context);
/// Messages: both ends agree, arrive after they were sent, and have the bytes that they must.
void check_messages(CheckContext& context);
/// Weights: each computation read, and each training made, its iteration's version.
void check_versions(CheckContext& context);

}  // namespace rpeg
