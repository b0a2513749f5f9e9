#include "support/virtual_run.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "rpeg/base/error.h"
#include "rpeg/base/rng.h"
#include "rpeg/job/tasks.h"

namespace rpeg {
namespace {

struct Step {
  std::size_t instruction = 0;
  std::int64_t iteration = 0;
};

struct VirtualRank {
  std::vector<Step> steps;
  std::size_t next = 0;
  double now_s = 0.0;
  std::map<int, std::int64_t> versions;                 ///< by copy
  std::map<std::pair<int, std::int64_t>, int> arrived;  ///< by transfer and iteration
};

struct Message {
  double arrival_s = 0.0;
  std::int64_t bytes = 0;
  std::int64_t version = -1;
};

class Machine {
 public:
  Machine(const Job& job, const VirtualRun& options)
      : job_(job), options_(options), rng_(options.seed), ranks_(job.ranks.size()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].steps = steps_of(job.ranks[r].program);
      RankTrace& trace = trace_.ranks.emplace_back();
      trace.rank = static_cast<std::int32_t>(r);
      trace.ranks = static_cast<std::int32_t>(ranks_.size());
      trace.plan_digest = job.plan_digest;
      trace.complete = true;
      trace.clock_error_s = r == 0 ? 0.0 : options.clock_error_s;
    }
  }

  Trace run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        while (ranks_[rank].next < ranks_[rank].steps.size() && execute(static_cast<int>(rank))) {
          progress = true;
        }
      }
    }
    for (const VirtualRank& rank : ranks_) {
      check(rank.next == rank.steps.size(), "virtual run: the programs deadlock");
    }
    for (RankTrace& rank : trace_.ranks) {
      const double off_s = rank.clock_error_s * (2.0 * rng_.uniform() - 1.0);
      for (TraceEvent& event : rank.events) {
        event.start_s += off_s;
        event.end_s += off_s;
      }
    }
    return std::move(trace_);
  }

 private:
  using Channel =
      std::tuple<int, int, int, int, std::int64_t>;  // from, to, tag, message, iteration

  std::vector<Step> steps_of(const std::vector<Instruction>& program) const {
    std::int64_t largest = 0;
    for (const Instruction& instruction : program) {
      largest = std::max(largest, instruction.shift);
    }
    std::vector<Step> steps;
    for (std::int64_t period = 0; period < options_.iterations + largest; ++period) {
      for (std::size_t i = 0; i < program.size(); ++i) {
        const std::int64_t iteration = period - program[i].shift;
        if (iteration >= 0 && iteration < options_.iterations) {
          steps.push_back({i, iteration});
        }
      }
    }
    for (std::size_t i = 0; i < program.size(); ++i) {
      if (program[i].kind == InstructionKind::kReceiveWeights) {
        for (std::int64_t k = 0; k < transfer_of(program[i]).delta; ++k) {
          steps.push_back({i, options_.iterations + k});
        }
      }
    }
    return steps;
  }

  const WeightTransfer& transfer_of(const Instruction& instruction) const {
    return job_.transfers[static_cast<std::size_t>(instruction.transfer)];
  }
  const Instruction& instruction_of(int rank, const Step& step) const {
    return job_.ranks[static_cast<std::size_t>(rank)].program[step.instruction];
  }
  double duration_s(double longest_s) { return longest_s * (0.1 + 0.9 * rng_.uniform()); }

  TraceEvent event_of(int rank, const Step& step) const {
    const Instruction& instruction = instruction_of(rank, step);
    TraceEvent event;
    event.iteration = step.iteration;
    event.rank = rank;
    event.instruction = static_cast<std::int32_t>(step.instruction);
    event.kind = to_string(instruction.kind);
    event.vertex = task_of(job_, instruction);
    event.peer = instruction.peer;
    return event;
  }

  /// Files an event that the rank reached at its present time, and moves the rank to its end.
  void finish(TraceEvent event, double start_s, double end_s) {
    VirtualRank& rank = ranks_[static_cast<std::size_t>(event.rank)];
    event.waited_s = start_s - rank.now_s;
    event.start_s = start_s;
    event.end_s = end_s;
    rank.now_s = end_s + duration_s(1e-5);
    ++rank.next;
    trace_.ranks[static_cast<std::size_t>(event.rank)].events.push_back(std::move(event));
  }

  bool execute(int rank) {
    const Step step =
        ranks_[static_cast<std::size_t>(rank)].steps[ranks_[static_cast<std::size_t>(rank)].next];
    switch (instruction_of(rank, step).kind) {
      case InstructionKind::kGenerate:
      case InstructionKind::kInfer:
      case InstructionKind::kTrain:
        return compute(rank, step);
      case InstructionKind::kSend:
      case InstructionKind::kSendWeights:
        send(rank, step);
        return true;
      case InstructionKind::kReceive:
      case InstructionKind::kReceiveWeights:
        return receive(rank, step);
    }
    return false;
  }

  /// The ranks that work together; they must all be at this computation.
  std::vector<int> group_of(int rank, VertexId vertex) const {
    const Block& block = block_of(job_, vertex);
    if (is_training(job_.graph.vertices[index(vertex)].op)) {
      return block.ranks;
    }
    return replica_ranks(block, place_in_block(block, rank)->dp);
  }

  bool compute(int rank, const Step& step) {
    const VertexId vertex = instruction_of(rank, step).vertex;
    const std::vector<int> group = group_of(rank, vertex);
    double all_there_s = 0.0;
    std::vector<Step> steps;
    for (const int member : group) {
      const VirtualRank& other = ranks_[static_cast<std::size_t>(member)];
      if (other.next == other.steps.size()) {
        return false;
      }
      const Step at = other.steps[other.next];
      const Instruction& instruction = instruction_of(member, at);
      const bool is_there = instruction.vertex == vertex && at.iteration == step.iteration &&
                            instruction.transfer < 0 && instruction.peer < 0;
      if (!is_there) {
        return false;
      }
      steps.push_back(at);
      all_there_s = std::max(all_there_s, other.now_s);
    }
    const bool trains = is_training(job_.graph.vertices[index(vertex)].op);
    for (std::size_t i = 0; i < group.size(); ++i) {
      compute_member(group[i], steps[i], all_there_s, trains);
    }
    return true;
  }

  void compute_member(int rank, const Step& step, double all_there_s, bool trains) {
    const Instruction& instruction = instruction_of(rank, step);
    VirtualRank& mine = ranks_[static_cast<std::size_t>(rank)];
    TraceEvent event = event_of(rank, step);
    std::int64_t& version = mine.versions[job_.vertex_copy[index(instruction.vertex)]];
    event.version = version;
    if (trains) {
      event.written = ++version;
    }
    const double start_s = trains ? all_there_s : mine.now_s;
    finish(event, start_s, all_there_s + duration_s(options_.longest_compute_s));
    if (records_sequences(job_, instruction)) {
      record(rank, step);
    }
  }

  /// Response length of a sequence, the same on every layout.
  std::int64_t tokens_of(std::int64_t iteration, std::int64_t sequence) const {
    Rng rng(derive_seed(derive_seed(options_.seed, static_cast<std::uint64_t>(iteration)),
                        static_cast<std::uint64_t>(sequence)));
    return 1 + rng.below(job_.inputs.workload.generation_length);
  }

  /// What a generating replica finishes: without cuts its sequences, in a stage those that end
  /// next.
  void record(int rank, const Step& step) {
    const Instruction& instruction = instruction_of(rank, step);
    const Block& block = block_of(job_, instruction.vertex);
    const BlockPlace place = *place_in_block(block, rank);
    if (place.pp != 0 || place.tp != 0) {
      return;
    }
    const std::int32_t stage = job_.graph.vertices[index(instruction.vertex)].stage;
    std::vector<TracedSequence> ending;
    for (const SequenceRange& range : instruction.sequences) {
      for (std::int64_t s = range.first; s < range.last; ++s) {
        ending.push_back({s, 3, tokens_of(step.iteration, s)});
      }
    }
    if (stage > 0) {
      std::ranges::stable_sort(ending, {}, &TracedSequence::response_tokens);
      std::int64_t& done = ended_[{rank, step.iteration}];
      const std::int64_t count = sequence_count(instruction.slots);
      ending = {ending.begin() + done, ending.begin() + done + count};
      done += count;
    }
    for (const TracedSequence& sequence : ending) {
      lengths_[{step.iteration, sequence.sequence}] = sequence.response_tokens;
    }
    auto& in_stage = stages_[{step.iteration, stage, place.dp}];
    in_stage = ending;
    trace_.ranks[static_cast<std::size_t>(rank)].rollouts.push_back(
        {.iteration = step.iteration,
         .rank = rank,
         .instruction = static_cast<std::int32_t>(step.instruction),
         .sequences = std::move(ending),
         .verifier_s = 1e-6});
  }

  std::int64_t data_bytes(const Instruction& instruction, std::int64_t iteration) const {
    const std::int32_t stage = job_.graph.vertices[index(instruction.vertex)].stage;
    std::int64_t bytes = 0;
    const auto add = [&](std::int64_t tokens) {
      bytes += message_capacity_bytes(instruction.payload, 1, tokens);
    };
    const auto is_inside = [](const std::vector<SequenceRange>& ranges, std::int64_t value) {
      return std::ranges::any_of(ranges,
                                 [&](const auto& r) { return value >= r.first && value < r.last; });
    };
    if (stage == 0) {
      // Of online DPO the reference infers two sequences of each prompt: here the first two.
      const PolicySpec& policy = job_.inputs.policy;
      const bool in_pairs = policy.algorithm == Algorithm::kDpo &&
                            policy.dpo_mode == DpoMode::kOnline &&
                            instruction.payload == Payload::kRefLogprobs;
      for (std::int64_t s = 0; s < job_sequences(job_.inputs); ++s) {
        const bool is_chosen = !in_pairs || s % job_.inputs.workload.samples_per_prompt < 2;
        if (is_chosen && is_inside(instruction.sequences, s)) {
          add(lengths_.at({iteration, s}));
        }
      }
      return bytes;
    }
    std::int64_t slot = 0;
    for (auto at = stages_.lower_bound({iteration, stage, 0});
         at != stages_.end() && std::get<0>(at->first) == iteration &&
         std::get<1>(at->first) == stage;
         ++at) {
      for (const TracedSequence& sequence : at->second) {
        const bool is_wanted =
            instruction.sequences.empty() || is_inside(instruction.sequences, sequence.sequence);
        if (is_inside(instruction.slots, slot++) && is_wanted) {
          add(sequence.response_tokens);
        }
      }
    }
    return bytes;
  }

  void send(int rank, const Step& step) {
    const Instruction& instruction = instruction_of(rank, step);
    VirtualRank& mine = ranks_[static_cast<std::size_t>(rank)];
    TraceEvent event = event_of(rank, step);
    if (instruction.kind == InstructionKind::kSendWeights) {
      event.bytes =
          transfer_of(instruction).messages[static_cast<std::size_t>(instruction.message)].bytes;
      event.version = mine.versions[transfer_of(instruction).from];
    } else {
      event.bytes = data_bytes(instruction, step.iteration);
    }
    const double start_s = mine.now_s;
    const double end_s = start_s + duration_s(1e-4);
    messages_[{rank, instruction.peer, instruction.tag, instruction.message, step.iteration}] = {
        start_s + duration_s(1e-3), event.bytes, event.version};
    finish(event, start_s, end_s);
  }

  bool receive(int rank, const Step& step) {
    const Instruction& instruction = instruction_of(rank, step);
    VirtualRank& mine = ranks_[static_cast<std::size_t>(rank)];
    TraceEvent event = event_of(rank, step);
    const bool brings_weights = instruction.kind == InstructionKind::kReceiveWeights;
    const std::int64_t delta = brings_weights ? transfer_of(instruction).delta : 0;
    if (step.iteration < delta) {
      event.version = 0;
      finish(event, mine.now_s, mine.now_s);
      return true;
    }
    const auto found = messages_.find(
        {instruction.peer, rank, instruction.tag, instruction.message, step.iteration - delta});
    if (found == messages_.end()) {
      return false;
    }
    event.bytes = found->second.bytes;
    event.version = found->second.version;
    if (brings_weights) {
      take_weights(rank, instruction, step.iteration, event.version);
    }
    const double start_s = std::max(mine.now_s, found->second.arrival_s);
    finish(event, start_s, start_s + duration_s(1e-4));
    return true;
  }

  /// The copy has the new version when all messages of the transfer are there.
  void take_weights(int rank,
                    const Instruction& instruction,
                    std::int64_t iteration,
                    std::int64_t version) {
    VirtualRank& mine = ranks_[static_cast<std::size_t>(rank)];
    const WeightTransfer& transfer = transfer_of(instruction);
    const auto expected = std::ranges::count(transfer.messages, rank, &WeightMessage::to);
    if (++mine.arrived[{instruction.transfer, iteration}] == expected) {
      mine.versions[transfer.to] = version;
    }
  }

  const Job& job_;
  const VirtualRun& options_;
  Rng rng_;
  std::vector<VirtualRank> ranks_;
  Trace trace_;
  std::map<Channel, Message> messages_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> lengths_;  ///< iteration, sequence
  std::map<std::pair<int, std::int64_t>, std::int64_t> ended_;             ///< rank, iteration
  /// By iteration, stage and replica.
  std::map<std::tuple<std::int64_t, std::int32_t, int>, std::vector<TracedSequence>> stages_;
};

}  // namespace

Trace virtual_run(const Job& job, const VirtualRun& options) { return Machine(job, options).run(); }

}  // namespace rpeg
