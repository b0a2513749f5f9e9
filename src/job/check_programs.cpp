#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "job/layout.h"
#include "job/static_check.h"
#include "rpeg/base/error.h"
#include "rpeg/job/compile.h"

namespace rpeg {
namespace {

/// A sender never gets further ahead: message buffers are bounded by this many of one tag.
constexpr std::size_t kMaxInFlight = 2;

/// A message on its way.
struct Message {
  int sender = 0;
  std::size_t instruction = 0;  ///< of the sender's program
  int iteration = 0;
  std::vector<int> versions;  ///< of a weights message: one
};

struct RankState {
  std::size_t next = 0;  ///< instruction to execute
  int iteration = 0;
  std::map<std::pair<VertexId, Payload>, std::vector<SequenceRange>> held;  ///< this iteration's
  std::vector<int> versions;                                                ///< by copy of the job
  std::map<int, int> arrived;       ///< messages of a transfer so far
  std::map<VertexId, int> entered;  ///< collectives entered so far
  bool is_inside = false;           ///< waits inside the next instruction
};

/// Executes all programs without data: what would be there, from which iteration and version.
class Machine {
 public:
  Machine(const Job& job, int iterations) : job_(job), iterations_(iterations) {
    ranks_.resize(job.ranks.size());
    for (RankState& rank : ranks_) {
      rank.versions.assign(job.copies.size(), 0);
    }
    for (std::size_t i = 0; i < job.graph.vertices.size(); ++i) {
      const VertexId vertex{static_cast<std::int32_t>(i)};
      if (is_training(job.graph.vertices[i].op)) {
        groups_[vertex] = &block_of(job, vertex).ranks;
      }
    }
  }

  void run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        while (!is_done(rank) && step(rank)) {
          progress = true;
        }
      }
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!is_done(rank)) {
        fail_deadlock();
      }
    }
    check_all_received();
  }

 private:
  using Channel = std::tuple<int, int, int>;  // from, to, tag

  bool is_done(std::size_t rank) const {
    return ranks_[rank].iteration == iterations_ || job_.ranks[rank].program.empty();
  }
  const Instruction& current(std::size_t rank) const {
    return job_.ranks[rank].program[ranks_[rank].next];
  }
  const Vertex& vertex_of(const Instruction& instruction) const {
    return job_.graph.vertices[index(instruction.vertex)];
  }

  [[noreturn]] void fail(std::size_t rank, const std::string& message) const {
    throw Error(ErrorKind::kUsage,
                fmt::format("{} of iteration {}: {}",
                            describe(job_, static_cast<int>(rank), ranks_[rank].next),
                            ranks_[rank].iteration,
                            message));
  }

  /// Executes the next instruction of a rank; false when it has to wait.
  bool step(std::size_t rank) {
    switch (current(rank).kind) {
      case InstructionKind::kGenerate:
      case InstructionKind::kInfer:
        compute(rank);
        break;
      case InstructionKind::kTrain:
        if (!train(rank)) {
          return false;
        }
        break;
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
    advance(rank);
    return true;
  }

  void advance(std::size_t rank) {
    RankState& state = ranks_[rank];
    if (++state.next == job_.ranks[rank].program.size()) {
      state.next = 0;
      state.held.clear();
      ++state.iteration;
    }
  }

  void check_inputs(std::size_t rank) {
    const Instruction& instruction = current(rank);
    const int replica = replica_of(rank, instruction.vertex);
    for (const Edge& edge : job_.graph.edges) {
      if (edge.to != instruction.vertex) {
        continue;
      }
      for (const Payload payload : edge_payloads(job_.graph, edge)) {
        const auto missing =
            subtract(replica_work(job_, edge.to, replica), ranks_[rank].held[{edge.from, payload}]);
        if (!missing.empty()) {
          fail(rank,
               fmt::format("its input is not there: {} of {}, sequences [{}, {})",
                           to_string(payload),
                           job_.graph.vertices[index(edge.from)].name,
                           missing.front().first,
                           missing.front().last));
        }
      }
    }
  }

  int replica_of(std::size_t rank, VertexId vertex) const {
    return place_in_block(block_of(job_, vertex), static_cast<int>(rank))->dp;
  }
  bool is_leader(std::size_t rank, VertexId vertex) const {
    const auto place = place_in_block(block_of(job_, vertex), static_cast<int>(rank));
    return place->pp == 0 && place->tp == 0;
  }

  void check_version(std::size_t rank) const {
    const VertexId vertex = current(rank).vertex;
    const WeightCopy& copy = copy_of(job_, vertex);
    const auto at = static_cast<std::size_t>(job_.vertex_copy[index(vertex)]);
    const int wanted =
        copy.is_frozen ? 0 : std::max(0, ranks_[rank].iteration - static_cast<int>(copy.tau));
    if (ranks_[rank].versions[at] != wanted) {
      fail(rank,
           fmt::format("it needs version {} of the {}'s weights, but has version {}",
                       wanted,
                       to_string(copy.model),
                       ranks_[rank].versions[at]));
    }
  }

  void compute(std::size_t rank) {
    const Instruction& instruction = current(rank);
    check_version(rank);
    if (!is_leader(rank, instruction.vertex)) {
      return;
    }
    check_inputs(rank);
    for (const Payload payload : produced_payloads(vertex_of(instruction))) {
      auto& held = ranks_[rank].held[{instruction.vertex, payload}];
      held = unite(held, instruction.sequences);
    }
  }

  /// A collective: leaves when all members of the group have entered it as often.
  bool train(std::size_t rank) {
    RankState& state = ranks_[rank];
    const VertexId vertex = current(rank).vertex;
    if (!state.is_inside) {
      compute(rank);
      ++state.entered[vertex];
      state.is_inside = true;
    }
    for (const int member : *groups_.at(vertex)) {
      if (ranks_[static_cast<std::size_t>(member)].entered[vertex] < state.entered[vertex]) {
        return false;
      }
    }
    state.is_inside = false;
    ++state.versions[static_cast<std::size_t>(job_.vertex_copy[index(vertex)])];
    return true;
  }

  const WeightTransfer& transfer_of(const Instruction& instruction) const {
    return job_.transfers[static_cast<std::size_t>(instruction.transfer)];
  }

  void send(std::size_t rank) {
    const Instruction& instruction = current(rank);
    RankState& state = ranks_[rank];
    Message message{static_cast<int>(rank), state.next, state.iteration, {}};
    if (instruction.kind == InstructionKind::kSend) {
      const auto& held = state.held[{instruction.vertex, instruction.payload}];
      if (!subtract(instruction.sequences, held).empty()) {
        fail(rank, "it sends what the rank has not computed");
      }
    } else {
      message.versions.push_back(
          state.versions[static_cast<std::size_t>(transfer_of(instruction).from)]);
    }
    auto& queue = channels_[{static_cast<int>(rank), instruction.peer, instruction.tag}];
    queue.push_back(std::move(message));
    if (queue.size() > kMaxInFlight) {
      fail(rank,
           fmt::format("it runs ahead of its receiver: {} messages of one tag are not received yet",
                       queue.size()));
    }
  }

  bool receive(std::size_t rank) {
    const Instruction& instruction = current(rank);
    const bool brings_weights = instruction.kind == InstructionKind::kReceiveWeights;
    const int delta = brings_weights ? static_cast<int>(transfer_of(instruction).delta) : 0;
    if (ranks_[rank].iteration < delta) {
      return true;  // the first iterations run on the initial weights
    }
    auto& queue = channels_[{instruction.peer, static_cast<int>(rank), instruction.tag}];
    if (queue.empty()) {
      return false;
    }
    const Message message = std::move(queue.front());
    queue.pop_front();
    const Instruction& sent =
        job_.ranks[static_cast<std::size_t>(message.sender)].program[message.instruction];
    const bool is_data = instruction.kind == InstructionKind::kReceive;
    const bool same_kind = (sent.kind == InstructionKind::kSend) == is_data;
    if (!same_kind || message.iteration != ranks_[rank].iteration - delta ||
        sent.vertex != instruction.vertex || sent.payload != instruction.payload ||
        sent.sequences != instruction.sequences || sent.transfer != instruction.transfer ||
        sent.message != instruction.message) {
      fail(rank,
           fmt::format("it gets another message, sent in iteration {} by {}",
                       message.iteration,
                       describe(job_, message.sender, message.instruction)));
    }
    if (is_data) {
      auto& held = ranks_[rank].held[{instruction.vertex, instruction.payload}];
      held = unite(held, instruction.sequences);
    } else {
      store_weights(rank, instruction, message.versions);
    }
    return true;
  }

  void store_weights(std::size_t rank,
                     const Instruction& instruction,
                     const std::vector<int>& versions) {
    const WeightTransfer& transfer = transfer_of(instruction);
    const auto mine =
        std::count_if(transfer.messages.begin(), transfer.messages.end(), [&](const auto& message) {
          return message.to == static_cast<int>(rank);
        });
    if (++ranks_[rank].arrived[instruction.transfer] == mine) {
      ranks_[rank].arrived[instruction.transfer] = 0;
      ranks_[rank].versions[static_cast<std::size_t>(transfer.to)] = versions.front();
    }
  }

  /// Ranks that a waiting rank waits for.
  std::vector<std::size_t> waits_for(std::size_t rank) {
    const Instruction& instruction = current(rank);
    if (instruction.kind != InstructionKind::kTrain) {
      return {static_cast<std::size_t>(instruction.peer)};
    }
    std::vector<std::size_t> absent;
    for (const int member : *groups_.at(instruction.vertex)) {
      RankState& other = ranks_[static_cast<std::size_t>(member)];
      if (other.entered[instruction.vertex] < ranks_[rank].entered[instruction.vertex]) {
        absent.push_back(static_cast<std::size_t>(member));
      }
    }
    return absent;
  }

  /// Follows the first waiting rank to the one it waits for, and so on, until one repeats or ends.
  [[noreturn]] void fail_deadlock() {
    std::size_t rank = 0;
    while (is_done(rank)) {
      ++rank;
    }
    std::vector<std::size_t> path;
    while (!is_done(rank) && std::find(path.begin(), path.end(), rank) == path.end()) {
      path.push_back(rank);
      rank = waits_for(rank).front();
    }
    std::string text = "the rank programs deadlock:";
    const auto first = is_done(rank) ? path.begin() : std::find(path.begin(), path.end(), rank);
    for (auto it = first; it != path.end(); ++it) {
      text += fmt::format("\n  {} of iteration {} waits for rank {}",
                          describe(job_, static_cast<int>(*it), ranks_[*it].next),
                          ranks_[*it].iteration,
                          waits_for(*it).front());
    }
    if (is_done(rank)) {
      text += fmt::format("\n  rank {} has ended", rank);
    }
    throw Error(ErrorKind::kUsage, text);
  }

  void check_all_received() const {
    for (const auto& [channel, queue] : channels_) {
      // Weights of the last iterations are for those that would follow.
      if (!queue.empty() && queue.front().versions.empty()) {
        throw Error(ErrorKind::kUsage,
                    fmt::format("{} of iteration {}: nobody receives this message",
                                describe(job_, queue.front().sender, queue.front().instruction),
                                queue.front().iteration));
      }
    }
  }

  const Job& job_;
  int iterations_;
  std::vector<RankState> ranks_;
  std::map<VertexId, const std::vector<int>*> groups_;
  std::map<Channel, std::deque<Message>> channels_;
};

}  // namespace

void check_programs(const Job& job, int iterations) {
  check_static(job);
  Machine(job, iterations).run();
}

}  // namespace rpeg
