#include "job/program_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "job/held_data.h"
#include "job/program_state.h"
#include "job/static_check.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

bool is_compute(InstructionKind kind) {
  return kind == InstructionKind::kGenerate || kind == InstructionKind::kInfer ||
         kind == InstructionKind::kTrain;
}

/// A message on its way.
struct Message {
  int sender = 0;
  std::size_t instruction = 0;  ///< of the sender's program
  std::int64_t iteration = 0;
};

class Machine {
 public:
  Machine(const Job& job, std::int64_t iterations, const std::vector<std::int64_t>& most_in_flight)
      : job_(job),
        iterations_(iterations),
        most_in_flight_(most_in_flight),
        groups_(build_groups(job)),
        inputs_(find_inputs(job)),
        ranks_(build_rank_states(job, iterations)) {
    for (const Block& block : job.blocks) {
      places_.emplace_back(job.ranks.size());
      for (std::size_t i = 0; i < block.ranks.size(); ++i) {
        const int rank = block.ranks[i];
        places_.back()[static_cast<std::size_t>(rank)] = place_in_block(block, rank);
      }
    }
  }

  void run() {
    std::deque<std::size_t> runnable;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      runnable.push_back(rank);
    }
    while (!runnable.empty()) {
      const std::size_t rank = runnable.front();
      runnable.pop_front();
      while (!is_done(rank) && step(rank)) {
      }
      runnable.insert(runnable.end(), woken_.begin(), woken_.end());
      woken_.clear();
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!is_done(rank)) {
        fail_deadlock(rank);
      }
    }
    check_all_received();
  }

 private:
  using Channel = std::tuple<int, int, int>;  // from, to, tag

  bool is_done(std::size_t rank) const { return ranks_[rank].at == ranks_[rank].steps.size(); }
  const ProgramStep& current_step(std::size_t rank) const {
    return ranks_[rank].steps[ranks_[rank].at];
  }
  const Instruction& current(std::size_t rank) const {
    return job_.ranks[rank].program[current_step(rank).instruction];
  }
  std::string where(std::size_t rank) const {
    return fmt::format("{} of iteration {}",
                       describe(job_, static_cast<int>(rank), current_step(rank).instruction),
                       current_step(rank).iteration);
  }
  [[noreturn]] void fail(std::size_t rank, const std::string& message) const {
    throw Error(ErrorKind::kUsage, fmt::format("{}: {}", where(rank), message));
  }

  const BlockPlace& place_of(std::size_t rank, VertexId vertex) const {
    return *places_[static_cast<std::size_t>(job_.vertex_block[index(vertex)])][rank];
  }
  /// Leaders hold the data of their replicas.
  bool is_leader(std::size_t rank, VertexId vertex) const {
    const BlockPlace& place = place_of(rank, vertex);
    return place.pp == 0 && place.tp == 0;
  }
  ComputeGroup& group_of(std::size_t rank, VertexId vertex) {
    auto& groups = groups_[index(vertex)];
    return groups.size() == 1 ? groups.front()
                              : groups[static_cast<std::size_t>(place_of(rank, vertex).dp)];
  }

  /// Executes the next step of a rank; false when it has to wait.
  bool step(std::size_t rank) {
    switch (current(rank).kind) {
      case InstructionKind::kGenerate:
      case InstructionKind::kInfer:
      case InstructionKind::kTrain:
        return compute(rank);
      case InstructionKind::kSend:
      case InstructionKind::kSendWeights:
        send(rank);
        break;
      case InstructionKind::kReceive:
      case InstructionKind::kReceiveWeights:
        if (!receive(rank)) {
          return false;
        }
        break;
    }
    ++ranks_[rank].at;
    return true;
  }

  /// A collective of its group: all members leave when the last has entered.
  bool compute(std::size_t rank) {
    if (ranks_[rank].is_inside) {
      return false;
    }
    const VertexId vertex = current(rank).vertex;
    const std::int64_t iteration = current_step(rank).iteration;
    ComputeGroup& group = group_of(rank, vertex);
    if (group.inside.empty()) {
      group.iteration = iteration;
    } else if (group.iteration != iteration) {
      fail(rank,
           fmt::format("it enters the computation that rank {} has entered for iteration {}",
                       group.inside.front(),
                       group.iteration));
    }
    check_version(rank);
    check_inputs(rank);
    group.inside.push_back(static_cast<int>(rank));
    ranks_[rank].is_inside = true;
    if (group.inside.size() < group.members.size()) {
      return false;
    }
    group.inside.clear();
    for (const int member : group.members) {
      finish_compute(static_cast<std::size_t>(member));
      if (member != static_cast<int>(rank)) {
        woken_.push_back(static_cast<std::size_t>(member));
      }
    }
    return true;
  }

  void finish_compute(std::size_t rank) {
    const Instruction& instruction = current(rank);
    const std::int64_t iteration = current_step(rank).iteration;
    RankState& state = ranks_[rank];
    state.is_inside = false;
    state.computed[index(instruction.vertex)] = iteration;
    const Vertex& vertex = job_.graph.vertices[index(instruction.vertex)];
    if (is_training(vertex.op)) {
      const auto copy = static_cast<std::size_t>(job_.vertex_copy[index(instruction.vertex)]);
      check_readers(rank, job_.copies[copy], iteration);
      ++state.versions[copy];
    }
    const std::vector<Payload> made = is_leader(rank, instruction.vertex)
                                          ? produced_payloads(job_.graph, instruction.vertex)
                                          : std::vector<Payload>{};
    for (const Payload payload : made) {
      const bool is_cut = vertex.stage > 0;
      add_data(
          &state.held[{iteration, instruction.vertex, payload}],
          is_cut ? ReplicaWork{{}, instruction.slots} : ReplicaWork{instruction.sequences, {}});
    }
    ++state.at;
  }

  void check_version(std::size_t rank) const {
    const VertexId vertex = current(rank).vertex;
    const WeightCopy& copy = copy_of(job_, vertex);
    const std::int64_t has =
        ranks_[rank].versions[static_cast<std::size_t>(job_.vertex_copy[index(vertex)])];
    const std::int64_t wanted =
        copy.is_frozen ? 0 : std::max<std::int64_t>(0, current_step(rank).iteration - copy.tau);
    if (has != wanted) {
      fail(rank,
           fmt::format("it needs version {} of the {}'s weights, but {}",
                       wanted,
                       to_string(copy.model),
                       has == kBeingWritten ? std::string("a newer one is arriving")
                                            : fmt::format("has version {}", has)));
    }
  }

  void check_inputs(std::size_t rank) {
    const VertexId vertex = current(rank).vertex;
    if (!is_leader(rank, vertex)) {
      return;  // its leader has them
    }
    const BlockPlace& place = place_of(rank, vertex);
    const std::int64_t iteration = current_step(rank).iteration;
    for (const ComputeInput& input : inputs_[index(vertex)][static_cast<std::size_t>(place.dp)]) {
      if (!covers(ranks_[rank].held[{iteration, input.producer, input.payload}], input.work)) {
        const bool has_slots = !input.work.slots.empty();
        const SequenceRange& first = (has_slots ? input.work.slots : input.work.sequences).front();
        fail(rank,
             fmt::format("its input is not there: {} of {}, some of the {} from [{}, {}) on",
                         to_string(input.payload),
                         job_.graph.vertices[index(input.producer)].name,
                         has_slots ? "slots" : "sequences",
                         first.first,
                         first.last));
      }
    }
  }

  /// Before a copy changes, all that read it must have run for `iteration`.
  void check_readers(std::size_t rank, const WeightCopy& copy, std::int64_t iteration) const {
    const std::int64_t last = std::min(iteration, iterations_ - 1);
    for (const VertexId vertex : copy.vertices) {
      if (ranks_[rank].computed[index(vertex)] < last) {
        fail(rank,
             fmt::format("it overwrites the {}'s weights before {} of iteration {} has used them",
                         to_string(copy.model),
                         job_.graph.vertices[index(vertex)].name,
                         last));
      }
    }
  }

  const WeightTransfer& transfer_of(const Instruction& instruction) const {
    return job_.transfers[static_cast<std::size_t>(instruction.transfer)];
  }

  void send(std::size_t rank) {
    const Instruction& instruction = current(rank);
    const ProgramStep& step = current_step(rank);
    RankState& state = ranks_[rank];
    if (instruction.kind == InstructionKind::kSend) {
      const HeldData& held = state.held[{step.iteration, instruction.vertex, instruction.payload}];
      const bool is_empty = instruction.sequences.empty() && instruction.slots.empty();
      const bool is_there = is_empty ? state.computed[index(instruction.vertex)] == step.iteration
                                     : covers(held, {instruction.sequences, instruction.slots});
      if (!is_there) {
        fail(rank, "it sends what the rank has not computed");
      }
    } else {
      const auto from = static_cast<std::size_t>(transfer_of(instruction).from);
      if (state.versions[from] != step.iteration + 1) {
        fail(rank,
             fmt::format("it sends version {} of the weights instead of {}",
                         state.versions[from],
                         step.iteration + 1));
      }
    }
    auto& queue = channels_[{static_cast<int>(rank), instruction.peer, instruction.tag}];
    queue.push_back({static_cast<int>(rank), step.instruction, step.iteration});
    const auto tag = static_cast<std::size_t>(instruction.tag);
    const std::int64_t most = tag < most_in_flight_.size() ? most_in_flight_[tag] : 1;
    if (static_cast<std::int64_t>(queue.size()) > most) {
      fail(rank,
           fmt::format("it runs ahead of its receiver: {} messages of one tag are not received "
                       "yet, at most {} may be",
                       queue.size(),
                       most));
    }
    woken_.push_back(static_cast<std::size_t>(instruction.peer));
  }

  bool receive(std::size_t rank) {
    const Instruction& instruction = current(rank);
    const ProgramStep& step = current_step(rank);
    const bool brings_weights = instruction.kind == InstructionKind::kReceiveWeights;
    const std::int64_t delta = brings_weights ? transfer_of(instruction).delta : 0;
    const auto found = channels_.find({instruction.peer, static_cast<int>(rank), instruction.tag});
    if (found == channels_.end() || found->second.empty()) {
      return false;
    }
    const Message message = found->second.front();
    found->second.pop_front();
    const Instruction& sent =
        job_.ranks[static_cast<std::size_t>(message.sender)].program[message.instruction];
    const bool same_kind = (sent.kind == InstructionKind::kSendWeights) == brings_weights;
    if (!same_kind || message.iteration != step.iteration - delta ||
        sent.vertex != instruction.vertex || sent.payload != instruction.payload ||
        sent.sequences != instruction.sequences || sent.slots != instruction.slots ||
        sent.transfer != instruction.transfer || sent.message != instruction.message) {
      fail(rank,
           fmt::format("it gets another message, sent in iteration {} by {}",
                       message.iteration,
                       describe(job_, message.sender, message.instruction)));
    }
    if (brings_weights) {
      store_weights(rank, message.iteration + 1);
    } else {
      store_data(rank);
    }
    return true;
  }

  void store_data(std::size_t rank) {
    const Instruction& instruction = current(rank);
    const ReplicaWork work{instruction.sequences, instruction.slots};
    HeldData& held =
        ranks_[rank].held[{current_step(rank).iteration, instruction.vertex, instruction.payload}];
    if (overlaps(held, work)) {
      fail(rank, "it gets what the rank has already");
    }
    add_data(&held, work);
  }

  void store_weights(std::size_t rank, std::int64_t version) {
    const Instruction& instruction = current(rank);
    const WeightTransfer& transfer = transfer_of(instruction);
    const auto t = static_cast<std::size_t>(instruction.transfer);
    const auto copy = static_cast<std::size_t>(transfer.to);
    RankState& state = ranks_[rank];
    if (state.arrived[t] == 0) {
      check_readers(rank, job_.copies[copy], current_step(rank).iteration - 1);
    }
    state.versions[copy] = kBeingWritten;
    if (++state.arrived[t] == state.expected[t]) {
      state.arrived[t] = 0;
      state.versions[copy] = version;
    }
  }

  /// The ranks that a waiting rank waits for.
  std::vector<std::size_t> waits_for(std::size_t rank) {
    const Instruction& instruction = current(rank);
    if (!is_compute(instruction.kind)) {
      return {static_cast<std::size_t>(instruction.peer)};
    }
    const ComputeGroup& group = group_of(rank, instruction.vertex);
    std::vector<std::size_t> absent;
    for (const int member : group.members) {
      if (std::find(group.inside.begin(), group.inside.end(), member) == group.inside.end()) {
        absent.push_back(static_cast<std::size_t>(member));
      }
    }
    return absent;
  }

  /// Follows a waiting rank to one that it waits for, and so on, until one repeats or has ended.
  [[noreturn]] void fail_deadlock(std::size_t rank) {
    std::vector<std::size_t> path;
    while (!is_done(rank) && std::find(path.begin(), path.end(), rank) == path.end()) {
      path.push_back(rank);
      rank = waits_for(rank).front();
    }
    std::string text = "the rank programs deadlock:";
    const auto first = is_done(rank) ? path.begin() : std::find(path.begin(), path.end(), rank);
    for (auto it = first; it != path.end(); ++it) {
      text += fmt::format("\n  {} waits for rank {}", where(*it), waits_for(*it).front());
    }
    if (is_done(rank)) {
      text += fmt::format("\n  rank {} has ended", rank);
    }
    throw Error(ErrorKind::kUsage, text);
  }

  void check_all_received() const {
    for (const auto& [channel, queue] : channels_) {
      if (!queue.empty()) {
        throw Error(ErrorKind::kUsage,
                    fmt::format("{} of iteration {}: nobody receives this message",
                                describe(job_, queue.front().sender, queue.front().instruction),
                                queue.front().iteration));
      }
    }
  }

  const Job& job_;
  std::int64_t iterations_;
  const std::vector<std::int64_t>& most_in_flight_;
  std::vector<std::vector<ComputeGroup>> groups_;
  std::vector<std::vector<std::vector<ComputeInput>>> inputs_;
  std::vector<RankState> ranks_;
  std::vector<std::vector<std::optional<BlockPlace>>> places_;  // by block, rank
  std::vector<std::size_t> woken_;
  std::map<Channel, std::deque<Message>> channels_;
};

}  // namespace

void execute_symbolically(const Job& job,
                          std::int64_t iterations,
                          const std::vector<std::int64_t>& most_in_flight) {
  Machine(job, iterations, most_in_flight).run();
}

}  // namespace rpeg
