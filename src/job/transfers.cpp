#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "job/layout.h"
#include "job/programs.h"
#include "rpeg/base/error.h"
#include "rpeg/job/job.h"
#include "rpeg/spec/model_shard.h"

namespace rpeg {
namespace {

constexpr std::int64_t kElementBytes = 4;  // fp32

/// What one rank holds of a copy: the range of each tensor's split dimension, empty when none.
struct Holding {
  int rank = 0;
  std::vector<SequenceRange> ranges;  ///< by tensor of the transfer
};

std::vector<TransferTensor> whole_tensors(const ModelSpec& spec, Head head) {
  std::vector<TransferTensor> tensors;
  for (const ShardTensor& tensor : shard_tensors(spec, head, whole_model(spec))) {
    tensors.push_back({tensor.name, tensor.shape, std::max(tensor.split_dim, 0)});
  }
  return tensors;
}

std::int64_t extent(const TransferTensor& tensor) {
  return tensor.shape[static_cast<std::size_t>(tensor.dim)];
}

std::int64_t slice_bytes(const TransferTensor& tensor, std::int64_t rows) {
  const std::int64_t whole = std::accumulate(
      tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
  return whole / extent(tensor) * rows * kElementBytes;
}

/// By rank of the copy's block.
std::vector<Holding> holdings(const Job& job,
                              const WeightCopy& copy,
                              const std::vector<TransferTensor>& tensors) {
  const ModelSpec& spec = job.inputs.model(copy.model);
  const Block& block = job.blocks[static_cast<std::size_t>(copy.block)];
  std::map<std::string, std::size_t> at;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    at[tensors[i].name] = i;
  }
  std::vector<Holding> all;
  for (const int rank : block.ranks) {
    Holding holding{rank, std::vector<SequenceRange>(tensors.size())};
    for (const ShardTensor& tensor :
         shard_tensors(spec, copy.head, shard_at(spec, block, *place_in_block(block, rank)))) {
      const auto found = at.find(tensor.name);
      if (found == at.end()) {
        continue;  // a head that the other copy does not have
      }
      holding.ranges[found->second] = tensor.split_dim < 0
                                          ? SequenceRange{0, extent(tensors[found->second])}
                                          : SequenceRange{tensor.begin, tensor.end};
    }
    all.push_back(std::move(holding));
  }
  return all;
}

/// Ranks that hold the same range of a tensor.
struct Holders {
  SequenceRange range;
  std::vector<int> ranks;
};

/// By tensor, ascending: the distinct ranges of it and who holds them.
std::vector<std::vector<Holders>> group_holders(const std::vector<Holding>& all,
                                                std::size_t tensors) {
  std::vector<std::vector<Holders>> groups(tensors);
  for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
    std::map<SequenceRange, std::vector<int>> by_range;
    for (const Holding& holding : all) {
      const SequenceRange& range = holding.ranges[tensor];
      if (range.first < range.last) {
        by_range[range].push_back(holding.rank);
      }
    }
    for (auto& [range, ranks] : by_range) {
      groups[tensor].push_back({range, std::move(ranks)});
    }
  }
  return groups;
}

/// Chooses who sends what one receiver needs of one tensor: itself what it has, the rest the
/// nearest holder, of those the one with the fewest bytes so far.
class Router {
 public:
  Router(const Job& job,
         const std::vector<TransferTensor>& tensors,
         const std::vector<Holding>& senders)
      : job_(job),
        tensors_(tensors),
        groups_(group_holders(senders, tensors.size())),
        sent_(job.ranks.size(), 0) {
    for (const Holding& sender : senders) {
      own_[sender.rank] = &sender.ranges;
    }
  }

  void route(const Holding& receiver, std::size_t tensor) {
    const SequenceRange need = receiver.ranges[tensor];
    SequenceRange own{need.first, need.first};
    if (const auto found = own_.find(receiver.rank); found != own_.end()) {
      const SequenceRange& has = (*found->second)[tensor];
      const SequenceRange both{std::max(need.first, has.first), std::min(need.last, has.last)};
      own = both.first < both.last ? both : own;
    }
    route_others(receiver.rank, tensor, {need.first, own.first});
    if (own.first < own.last) {
      add(receiver.rank, receiver.rank, tensor, own);
    }
    route_others(receiver.rank, tensor, {own.last, need.last});
  }

  std::vector<WeightMessage> take() {
    std::vector<WeightMessage> result;
    for (auto& [ranks, message] : messages_) {
      message.from = ranks.first;
      message.to = ranks.second;
      result.push_back(std::move(message));
    }
    return result;
  }

 private:
  void route_others(int receiver, std::size_t tensor, SequenceRange need) {
    while (need.first < need.last) {
      const auto [sender, last] = choose(receiver, tensor, need.first);
      const SequenceRange part{need.first, std::min(need.last, last)};
      add(sender, receiver, tensor, part);
      sent_[static_cast<std::size_t>(sender)] +=
          slice_bytes(tensors_[tensor], part.last - part.first);
      need.first = part.last;
    }
  }

  void add(int sender, int receiver, std::size_t tensor, SequenceRange part) {
    WeightMessage& message = messages_[{sender, receiver}];
    message.slices.push_back({static_cast<std::int32_t>(tensor), part.first, part.last});
    message.bytes += slice_bytes(tensors_[tensor], part.last - part.first);
  }

  /// 0 in the same node, 1 in the same rack, 2 elsewhere.
  int distance(int a, int b) const {
    const int node_a = job_.ranks[static_cast<std::size_t>(a)].node;
    const int node_b = job_.ranks[static_cast<std::size_t>(b)].node;
    const int nodes = job_.inputs.hardware.nodes_per_rack;
    if (node_a == node_b) {
      return 0;
    }
    return node_a / nodes == node_b / nodes ? 1 : 2;
  }

  /// A holder of row `begin`, and where its range ends.
  std::pair<int, std::int64_t> choose(int receiver, std::size_t tensor, std::int64_t begin) const {
    std::tuple<int, std::int64_t, int> best{3, 0, -1};  // distance, bytes sent, rank
    std::int64_t last = 0;
    for (const Holders& holders : groups_[tensor]) {
      if (holders.range.first > begin || holders.range.last <= begin) {
        continue;
      }
      for (const int rank : holders.ranks) {
        const std::tuple candidate{
            distance(receiver, rank), sent_[static_cast<std::size_t>(rank)], rank};
        if (candidate < best) {
          best = candidate;
          last = holders.range.last;
        }
      }
    }
    check(std::get<2>(best) >= 0 && last > begin,
          "job: nobody holds a slice that a transfer moves");
    return {std::get<2>(best), last};
  }

  const Job& job_;
  const std::vector<TransferTensor>& tensors_;
  std::vector<std::vector<Holders>> groups_;
  std::map<int, const std::vector<SequenceRange>*> own_;
  std::map<std::pair<int, int>, WeightMessage> messages_;
  std::vector<std::int64_t> sent_;  // by rank
};

int trained_copy(const Job& job, ModelRole model) {
  for (std::size_t i = 0; i < job.copies.size(); ++i) {
    if (job.copies[i].is_trained && job.copies[i].model == model) {
      return static_cast<int>(i);
    }
  }
  throw Error(ErrorKind::kInternal, "job: no copy of the model is trained");
}

}  // namespace

void build_transfers(Job* job) {
  const std::vector<TaskPosition> positions = task_positions(*job);
  for (std::size_t to = 0; to < job->copies.size(); ++to) {
    const WeightCopy& reader = job->copies[to];
    if (reader.is_trained || reader.is_frozen) {
      continue;
    }
    WeightTransfer transfer;
    transfer.from = trained_copy(*job, reader.model);
    transfer.to = static_cast<int>(to);
    const WeightCopy& trained = job->copies[static_cast<std::size_t>(transfer.from)];
    transfer.producer = trained.vertices.front();
    transfer.consumer = *std::min_element(
        reader.vertices.begin(), reader.vertices.end(), [&](VertexId a, VertexId b) {
          return positions[index(a)] < positions[index(b)];
        });
    transfer.delta = 1 + reader.tau;
    transfer.tensors = whole_tensors(job->inputs.model(reader.model), reader.head);
    const std::vector<Holding> senders = holdings(*job, trained, transfer.tensors);
    Router router(*job, transfer.tensors, senders);
    for (const Holding& receiver : holdings(*job, reader, transfer.tensors)) {
      for (std::size_t tensor = 0; tensor < transfer.tensors.size(); ++tensor) {
        router.route(receiver, tensor);
      }
    }
    transfer.messages = router.take();
    job->transfers.push_back(std::move(transfer));
  }
}

}  // namespace rpeg
