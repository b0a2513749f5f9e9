#include <algorithm>
#include <map>
#include <numeric>
#include <set>
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

/// The ranks that hold the same part of a copy, one of each replica.
struct Shard {
  std::vector<SequenceRange> ranges;  ///< by tensor of the transfer: rows of its split dimension
  std::vector<int> ranks;
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

std::vector<Shard> find_shards(const Job& job,
                               const WeightCopy& copy,
                               const std::vector<TransferTensor>& tensors) {
  const ModelSpec& spec = job.inputs.model(copy.model);
  const Block& block = job.blocks[static_cast<std::size_t>(copy.block)];
  std::map<std::string, std::size_t> at;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    at[tensors[i].name] = i;
  }
  std::vector<Shard> shards;
  for (int pp = 0; pp < block.parallelism.pp; ++pp) {
    for (int tp = 0; tp < block.parallelism.tp; ++tp) {
      const BlockPlace place{0, pp, tp};
      Shard shard{std::vector<SequenceRange>(tensors.size()), data_ranks(block, place)};
      for (const ShardTensor& tensor :
           shard_tensors(spec, copy.head, shard_at(spec, block, place))) {
        const auto found = at.find(tensor.name);
        if (found == at.end()) {
          continue;  // a head that the other copy does not have
        }
        shard.ranges[found->second] = tensor.split_dim < 0
                                          ? SequenceRange{0, extent(tensors[found->second])}
                                          : SequenceRange{tensor.begin, tensor.end};
      }
      shards.push_back(std::move(shard));
    }
  }
  return shards;
}

/// Replicas of the receiving copy that lie outside the sending one; all when none does.
std::size_t lacking_replicas(const std::vector<Shard>& senders,
                             const std::vector<Shard>& receivers) {
  std::set<int> have;
  for (const Shard& shard : senders) {
    have.insert(shard.ranks.begin(), shard.ranks.end());
  }
  std::size_t outside = 0;
  for (const int rank : receivers.front().ranks) {
    outside += have.contains(rank) ? 0 : 1;
  }
  return outside > 0 ? outside : receivers.front().ranks.size();
}

/// Chooses who sends what one receiver needs: itself what it has, the rest the nearest holder, of
/// those the one with the fewest bytes so far. A receiver asks so many replicas of a shard that all
/// of them have something to send, and no more: few messages with equal slices.
class Router {
 public:
  Router(const Job& job,
         const std::vector<TransferTensor>& tensors,
         const std::vector<Shard>& senders,
         std::size_t receiving_replicas)
      : job_(job), tensors_(tensors), senders_(senders), sent_(job.ranks.size(), 0) {
    const std::size_t replicas = senders.front().ranks.size();
    asked_ = (replicas + receiving_replicas - 1) / receiving_replicas;
    for (std::size_t shard = 0; shard < senders.size(); ++shard) {
      for (const int rank : senders[shard].ranks) {
        own_shard_[rank] = shard;
      }
    }
  }

  void route(int receiver, const std::vector<SequenceRange>& needs) {
    choose_candidates(receiver);
    const auto own_shard = own_shard_.find(receiver);
    for (std::size_t tensor = 0; tensor < needs.size(); ++tensor) {
      const SequenceRange need = needs[tensor];
      SequenceRange own{need.first, need.first};
      if (own_shard != own_shard_.end()) {
        const SequenceRange& has = senders_[own_shard->second].ranges[tensor];
        const SequenceRange both{std::max(need.first, has.first), std::min(need.last, has.last)};
        own = both.first < both.last ? both : own;
      }
      route_others(receiver, tensor, {need.first, own.first});
      if (own.first < own.last) {
        add(receiver, receiver, tensor, own);
      }
      route_others(receiver, tensor, {own.last, need.last});
    }
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
      const auto [sender, last] = choose(tensor, need.first);
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

  /// Of each shard the nearest ranks, those that have sent least.
  void choose_candidates(int receiver) {
    candidates_.assign(senders_.size(), {});
    for (std::size_t shard = 0; shard < senders_.size(); ++shard) {
      std::vector<Candidate>& best = candidates_[shard];
      for (const int rank : senders_[shard].ranks) {
        best.push_back({distance(receiver, rank), sent_[static_cast<std::size_t>(rank)], rank});
      }
      const auto count = static_cast<std::ptrdiff_t>(std::min(asked_, best.size()));
      std::partial_sort(best.begin(), best.begin() + count, best.end());
      best.resize(static_cast<std::size_t>(count));
      std::erase_if(best, [&](const Candidate& candidate) {
        return std::get<0>(candidate) != std::get<0>(best.front());
      });
    }
  }

  /// A holder of row `begin`, and where its range ends.
  std::pair<int, std::int64_t> choose(std::size_t tensor, std::int64_t begin) const {
    Candidate best{3, 0, -1};
    std::int64_t last = 0;
    for (std::size_t shard = 0; shard < senders_.size(); ++shard) {
      const SequenceRange& range = senders_[shard].ranges[tensor];
      if (range.first > begin || range.last <= begin) {
        continue;
      }
      for (const auto& [far, bytes, rank] : candidates_[shard]) {
        const Candidate candidate{far, sent_[static_cast<std::size_t>(rank)], rank};
        if (candidate < best) {
          best = candidate;
          last = range.last;
        }
      }
    }
    check(std::get<2>(best) >= 0, "job: nobody holds a slice that a transfer moves");
    return {std::get<2>(best), last};
  }

  using Candidate = std::tuple<int, std::int64_t, int>;  // distance, bytes sent, rank

  const Job& job_;
  const std::vector<TransferTensor>& tensors_;
  const std::vector<Shard>& senders_;
  std::size_t asked_ = 1;
  std::map<int, std::size_t> own_shard_;            // by rank
  std::vector<std::vector<Candidate>> candidates_;  // by shard, for the receiver at hand
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
    const std::vector<Shard> senders = find_shards(*job, trained, transfer.tensors);
    const std::vector<Shard> receivers = find_shards(*job, reader, transfer.tensors);
    Router router(*job, transfer.tensors, senders, lacking_replicas(senders, receivers));
    for (const Shard& shard : receivers) {
      for (const int rank : shard.ranks) {
        router.route(rank, shard.ranges);
      }
    }
    transfer.messages = router.take();
    job->transfers.push_back(std::move(transfer));
  }
}

}  // namespace rpeg
