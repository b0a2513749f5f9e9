#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "rpeg/job/tasks.h"
#include "trace/check_context.h"

namespace rpeg {
namespace {

std::string record_text(const TracedRollouts& record) {
  return fmt::format("the rollouts of rank {}, instruction {}, iteration {}",
                     record.rank,
                     record.instruction,
                     record.iteration);
}

/// Files the records of one rank; what cannot be filed is a violation.
void file_rollouts(CheckContext& context, int rank) {
  const std::vector<Instruction>& program = context.program(rank);
  auto& table = context.rollouts[static_cast<std::size_t>(rank)];
  for (const TracedRollouts& record : context.ranks[static_cast<std::size_t>(rank)]->rollouts) {
    const bool is_placed = record.rank == rank && record.instruction >= 0 &&
                           static_cast<std::size_t>(record.instruction) < program.size() &&
                           record.iteration >= context.first && record.iteration < context.last;
    if (!is_placed) {
      context.add("rollouts",
                  fmt::format("{}, in the trace of rank {}, belong to no instruction of it",
                              record_text(record),
                              rank));
      continue;
    }
    const auto row = static_cast<std::size_t>(record.iteration - context.first);
    const TracedRollouts*& place =
        table[row * program.size() + static_cast<std::size_t>(record.instruction)];
    if (place != nullptr) {
      context.add("rollouts", record_text(record) + " are recorded twice");
    }
    place = &record;
  }
}

/// The leaders of the replicas record what they finish, nobody else does.
bool is_recording(const CheckContext& context, int rank, const Instruction& instruction) {
  const std::vector<int> leaders = vertex_leaders(context.job, instruction.vertex);
  return records_sequences(context.job, instruction) &&
         std::find(leaders.begin(), leaders.end(), rank) != leaders.end();
}

/// Adds the sequences of a record to those of its iteration.
void take_sequences(CheckContext& context, const TracedRollouts& record) {
  const std::int64_t count = job_sequences(context.job.inputs);
  const std::int64_t longest = context.job.inputs.workload.generation_length;
  auto& known = context.sequences[static_cast<std::size_t>(record.iteration - context.first)];
  for (const TracedSequence& sequence : record.sequences) {
    const bool is_possible = sequence.sequence >= 0 && sequence.sequence < count &&
                             sequence.prompt_tokens >= 1 && sequence.response_tokens >= 1 &&
                             sequence.response_tokens <= longest;
    if (!is_possible) {
      context.add("rollouts",
                  fmt::format("{}: sequence {} with {} prompt and {} response tokens; the job has "
                              "{} sequences with responses of 1 to {} tokens",
                              record_text(record),
                              sequence.sequence,
                              sequence.prompt_tokens,
                              sequence.response_tokens,
                              count,
                              longest));
    }
    if (!known.emplace(sequence.sequence, sequence).second) {
      context.add("rollouts",
                  fmt::format("{}: sequence {} is recorded twice in the iteration",
                              record_text(record),
                              sequence.sequence));
    }
  }
}

/// Without cuts the sequences of a record are those of the instruction, with cuts as many as it has
/// slots, of those that the replica generates.
void check_record(CheckContext& context,
                  const Instruction& instruction,
                  const TracedRollouts& record) {
  std::set<std::int64_t> allowed;
  for (const SequenceRange& range : instruction.sequences) {
    for (std::int64_t s = range.first; s < range.last; ++s) {
      allowed.insert(s);
    }
  }
  const bool in_slots = has_slots(context.job, instruction);
  const auto due = static_cast<std::size_t>(
      sequence_count(in_slots ? instruction.slots : instruction.sequences));
  const bool is_own = allowed.empty() || std::ranges::all_of(record.sequences, [&](const auto& s) {
                        return allowed.contains(s.sequence);
                      });
  if (record.sequences.size() != due || !is_own) {
    context.add("rollouts",
                fmt::format("{}: {} sequences{}; the program has {}",
                            record_text(record),
                            record.sequences.size(),
                            is_own ? "" : ", not all of this replica",
                            due));
  }
}

void check_rank(CheckContext& context, int rank) {
  const std::vector<Instruction>& program = context.program(rank);
  for (std::size_t i = 0; i < program.size(); ++i) {
    const bool records = is_recording(context, rank, program[i]);
    for (std::int64_t iteration = context.first; iteration < context.last; ++iteration) {
      const TracedRollouts* record = context.rollout(rank, i, iteration);
      if ((record != nullptr) != records) {
        context.add("rollouts",
                    fmt::format("rank {}, instruction {} of iteration {}: {}",
                                rank,
                                i,
                                iteration,
                                records ? "there is no record of its sequences"
                                        : "a record of sequences that is not its own"));
      } else if (record != nullptr) {
        check_record(context, program[i], *record);
        take_sequences(context, *record);
      }
    }
  }
}

/// The sequences that ended in a stage, in the order of their slots: replica by replica.
std::optional<std::vector<TracedSequence>> stage_sequences(const CheckContext& context,
                                                           std::int32_t stage,
                                                           std::int64_t iteration) {
  std::vector<TracedSequence> all;
  for (std::size_t v = 0; v < context.job.graph.vertices.size(); ++v) {
    const Vertex& vertex = context.job.graph.vertices[v];
    if (vertex.op != Op::kGenerate || vertex.stage != stage) {
      continue;
    }
    const VertexId id{static_cast<std::int32_t>(v)};
    for (const int leader : vertex_leaders(context.job, id)) {
      const auto instruction = context.compute_instruction(leader, id);
      const TracedRollouts* record =
          instruction ? context.rollout(leader, *instruction, iteration) : nullptr;
      if (record == nullptr) {
        return std::nullopt;
      }
      all.insert(all.end(), record->sequences.begin(), record->sequences.end());
    }
  }
  return all;
}

}  // namespace

std::optional<std::vector<TracedSequence>> sequences_of(const CheckContext& context,
                                                        const Instruction& instruction,
                                                        std::int64_t iteration) {
  std::vector<TracedSequence> result;
  if (!has_slots(context.job, instruction)) {
    const auto& known = context.sequences[static_cast<std::size_t>(iteration - context.first)];
    for (const SequenceRange& range : instruction.sequences) {
      for (std::int64_t s = range.first; s < range.last; ++s) {
        const auto found = known.find(s);
        if (found == known.end()) {
          return std::nullopt;
        }
        result.push_back(found->second);
      }
    }
    return result;
  }
  const std::int32_t stage = context.job.graph.vertices[index(instruction.vertex)].stage;
  const auto all = stage_sequences(context, stage, iteration);
  if (!all) {
    return std::nullopt;
  }
  for (const SequenceRange& slots : instruction.slots) {
    for (std::int64_t slot = slots.first; slot < slots.last; ++slot) {
      if (slot >= static_cast<std::int64_t>(all->size())) {
        return std::nullopt;
      }
      const TracedSequence& sequence = (*all)[static_cast<std::size_t>(slot)];
      const bool is_wanted =
          instruction.sequences.empty() ||
          std::ranges::any_of(instruction.sequences, [&](const SequenceRange& range) {
            return sequence.sequence >= range.first && sequence.sequence < range.last;
          });
      if (is_wanted) {
        result.push_back(sequence);
      }
    }
  }
  return result;
}

void check_rollouts(CheckContext& context) {
  const auto iterations = static_cast<std::size_t>(context.drained - context.first);
  context.sequences.resize(iterations);
  context.rollouts.resize(context.job.ranks.size());
  for (std::size_t rank = 0; rank < context.job.ranks.size(); ++rank) {
    context.rollouts[rank].assign(iterations * context.job.ranks[rank].program.size(), nullptr);
    if (context.ranks[rank] != nullptr) {
      file_rollouts(context, static_cast<int>(rank));
      check_rank(context, static_cast<int>(rank));
    }
  }
}

}  // namespace rpeg
