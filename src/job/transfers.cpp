#include <algorithm>
#include <numeric>
#include <set>

#include "job/programs.h"
#include "rpeg/base/error.h"
#include "rpeg/job/tensors.h"

namespace rpeg {
namespace {

constexpr std::int64_t kElementBytes = 4;  // fp32

/// Tensors (ascending) of each of `parts` senders, and their bytes.
struct Share {
  std::vector<std::int32_t> tensors;
  std::int64_t bytes = 0;
};

std::vector<Share> deal_tensors(const std::vector<ModelTensor>& tensors, std::size_t parts) {
  std::vector<std::int32_t> by_size(tensors.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  const auto count = [&](std::int32_t i) { return tensors[static_cast<std::size_t>(i)].count; };
  std::stable_sort(by_size.begin(), by_size.end(), [&](std::int32_t a, std::int32_t b) {
    return count(a) > count(b);
  });
  std::vector<Share> shares(parts);
  for (const std::int32_t tensor : by_size) {
    Share& least = *std::min_element(
        shares.begin(), shares.end(), [](auto& a, auto& b) { return a.bytes < b.bytes; });
    least.tensors.push_back(tensor);
    least.bytes += count(tensor) * kElementBytes;
  }
  for (Share& share : shares) {
    std::sort(share.tensors.begin(), share.tensors.end());
  }
  return shares;
}

WeightTransfer build_transfer(const Job& job, const Edge& edge, const std::vector<int>& receivers) {
  WeightTransfer transfer;
  transfer.producer = edge.from;
  transfer.consumer = edge.to;
  transfer.model = job.graph.vertices[index(edge.from)].model;
  const auto tensors =
      model_tensors(job.inputs.model(transfer.model), transfer.model == ModelRole::kCritic);
  for (const ModelTensor& tensor : tensors) {
    transfer.tensors.push_back(tensor.name);
  }
  const std::vector<int> senders = vertex_ranks(job, edge.from);
  const std::vector<Share> shares = deal_tensors(tensors, senders.size());
  for (std::size_t i = 0; i < senders.size(); ++i) {
    if (shares[i].tensors.empty()) {
      continue;
    }
    for (const int to : receivers) {
      transfer.messages.push_back({senders[i], to, shares[i].tensors, shares[i].bytes});
    }
  }
  return transfer;
}

}  // namespace

void build_transfers(Job* job) {
  std::array<std::set<int>, kModelRoles> up_to_date;  // ranks that have the new weights anyway
  for (const DataParallelGroup& group : job->groups) {
    const auto role = static_cast<std::size_t>(job->graph.vertices[index(group.vertex)].model);
    up_to_date[role].insert(group.ranks.begin(), group.ranks.end());
  }
  for (const Edge& edge : job->graph.edges) {
    if (edge.kind != EdgeKind::kWeights) {
      continue;
    }
    const auto role = static_cast<std::size_t>(job->graph.vertices[index(edge.from)].model);
    std::vector<int> receivers;
    for (const int rank : vertex_ranks(*job, edge.to)) {
      if (up_to_date[role].insert(rank).second) {
        receivers.push_back(rank);
      }
    }
    if (!receivers.empty()) {
      job->transfers.push_back(build_transfer(*job, edge, receivers));
    }
  }
}

}  // namespace rpeg
