#include <algorithm>
#include <map>
#include <numeric>
#include <set>

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

/// Chooses who sends what one receiver needs of one tensor: from itself when it has it, else from
/// the sender with the fewest bytes so far of those that hold the piece.
class Router {
 public:
  Router(const std::vector<TransferTensor>& tensors, const std::vector<Holding>& senders)
      : tensors_(tensors), senders_(senders) {}

  void route(const Holding& receiver, std::size_t tensor) {
    const SequenceRange need = receiver.ranges[tensor];
    for (std::int64_t begin = need.first; begin < need.last;) {
      const Holding& sender = choose(receiver.rank, tensor, begin);
      const std::int64_t end = std::min(need.last, sender.ranges[tensor].last);
      WeightMessage& message = messages_[{sender.rank, receiver.rank}];
      message.slices.push_back({static_cast<std::int32_t>(tensor), begin, end});
      message.bytes += slice_bytes(tensors_[tensor], end - begin);
      if (sender.rank != receiver.rank) {
        sent_[sender.rank] += slice_bytes(tensors_[tensor], end - begin);
      }
      begin = end;
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
  const Holding& choose(int receiver, std::size_t tensor, std::int64_t begin) {
    const Holding* best = nullptr;
    for (const Holding& sender : senders_) {
      const SequenceRange& range = sender.ranges[tensor];
      if (range.first > begin || range.last <= begin) {
        continue;
      }
      if (sender.rank == receiver) {
        return sender;
      }
      if (best == nullptr || sent_[sender.rank] < sent_[best->rank]) {
        best = &sender;
      }
    }
    check(best != nullptr, "job: nobody holds a slice that a transfer moves");
    return *best;
  }

  const std::vector<TransferTensor>& tensors_;
  const std::vector<Holding>& senders_;
  std::map<std::pair<int, int>, WeightMessage> messages_;
  std::map<int, std::int64_t> sent_;
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
    transfer.consumer = reader.vertices.front();
    transfer.delta = 1 + reader.tau;
    transfer.tensors = whole_tensors(job->inputs.model(reader.model), reader.head);
    const std::vector<Holding> senders = holdings(*job, trained, transfer.tensors);
    Router router(transfer.tensors, senders);
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
