#include "comm/message_comm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

// Tags of the collective channel: ranks that enter different collectives wait for each other until
// the time limit instead of exchanging nonsense.
enum CollectiveTag : int {
  kReduceTag,
  kScatterTag,
  kChunkTag,
  kGatherTag,
  kBroadcastTag,
  kBarrierTag,
  kSubgroupTag
};

const char* collective_name(int tag) {
  switch (static_cast<CollectiveTag>(tag)) {
    case kReduceTag:
      return "all_reduce_sum";
    case kScatterTag:
      return "reduce_scatter_sum";
    case kChunkTag:
      return "all_gather_chunks";
    case kBroadcastTag:
      return "broadcast";
    case kGatherTag:
      return "all_gather";
    case kBarrierTag:
      return "barrier";
    case kSubgroupTag:
      return "subgroup";
  }
  return "collective";
}

// Up to this size everybody sends everything to everybody: one message delay instead of two.
constexpr std::size_t kWholeBytes = 8192;

template <typename T>
Bytes to_bytes(std::span<const T> values) {
  const auto raw = std::as_bytes(values);
  return {raw.begin(), raw.end()};
}

template <typename T>
void check_length(const Bytes& message, std::span<T> values) {
  check(message.size() == values.size_bytes(), "a sum over ranks that passed different lengths");
}

/// memcpy that takes null pointers for nothing: chunks of small reductions may be empty.
void copy_bytes(const std::byte* from, std::size_t bytes, void* to) {
  if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

template <typename T>
void copy_values(const Bytes& message, std::span<T> values) {
  check_length(message, values);
  copy_bytes(message.data(), message.size(), values.data());
}

template <typename T>
void add_values(const Bytes& message, std::span<T> sum) {
  check_length(message, sum);
  // Blocks of a fixed size in a buffer of their own: the compiler can add them in vector registers.
  constexpr std::size_t kBlock = 256;
  std::array<T, kBlock> values{};
  std::size_t begin = 0;
  for (; begin + kBlock <= sum.size(); begin += kBlock) {
    copy_bytes(message.data() + begin * sizeof(T), sizeof(values), values.data());
    T* target = sum.data() + begin;
    for (std::size_t i = 0; i < kBlock; ++i) {
      target[i] += values[i];
    }
  }
  const std::size_t rest = sum.size() - begin;
  copy_bytes(message.data() + begin * sizeof(T), rest * sizeof(T), values.data());
  for (std::size_t i = 0; i < rest; ++i) {
    sum[begin + i] += values[i];
  }
}

}  // namespace

std::pair<std::size_t, std::size_t> chunk_bounds(std::size_t size, int ranks, int rank) {
  const auto count = static_cast<std::size_t>(ranks);
  const auto begin = [&](std::size_t i) { return size / count * i + std::min(i, size % count); };
  return {begin(static_cast<std::size_t>(rank)), begin(static_cast<std::size_t>(rank) + 1)};
}

MessageComm::MessageComm(int rank, std::vector<int> members, std::shared_ptr<WaitPolicy> policy)
    : rank_(rank), members_(std::move(members)), policy_(std::move(policy)) {}

void MessageComm::set_timeout(double seconds) {
  check(seconds > 0.0, "the time limit of a wait must be positive");
  policy_->timeout_s = seconds;
}

void MessageComm::check_peer(int peer, int tag) const {
  check(peer >= 0 && peer < size(),
        fmt::format("peer {} is outside a group of {} ranks", peer, size()));
  check(tag >= 0, fmt::format("message tag {} is negative", tag));
}

void MessageComm::send(int to, int tag, Bytes message) {
  check_peer(to, tag);
  post(Channel::kCaller, to, tag, std::move(message));
}

Bytes MessageComm::receive(int from, int tag) {
  check_peer(from, tag);
  return take(Channel::kCaller, from, tag);
}

bool MessageComm::ready(int from, int tag) {
  check_peer(from, tag);
  return has(Channel::kCaller, from, tag);
}

void MessageComm::expect(int from, int tag) {
  check_peer(from, tag);
  announce(Channel::kCaller, from, tag);
}

void MessageComm::fail_wait(Channel channel, int from, int tag) const {
  const std::string what =
      channel == Channel::kCaller
          ? fmt::format(
                "a message of rank {} (tag {})", members_[static_cast<std::size_t>(from)], tag)
          : fmt::format(
                "rank {} in {}", members_[static_cast<std::size_t>(from)], collective_name(tag));
  const std::string context = policy_->context.empty() ? "" : " in " + policy_->context;
  throw Error(
      ErrorKind::kRuntime,
      fmt::format(
          "rank {} waited {:g} s for {}{}", members_[rank_], policy_->timeout_s, what, context));
}

void MessageComm::fail_flush(std::size_t messages) const {
  const std::string context = policy_->context.empty() ? "" : " in " + policy_->context;
  throw Error(ErrorKind::kRuntime,
              fmt::format("rank {} waited {:g} s for {} of its messages to be received{}",
                          members_[rank_],
                          policy_->timeout_s,
                          messages,
                          context));
}

std::vector<int> MessageComm::world_ranks(const std::vector<int>& ranks) const {
  std::vector<int> result;
  for (const int rank : ranks) {
    result.push_back(members_[rank]);
  }
  return result;
}

void MessageComm::all_reduce_sum(std::span<float> values) { reduce(values); }
void MessageComm::all_reduce_sum(std::span<double> values) { reduce(values); }

template <typename T>
void MessageComm::reduce(std::span<T> values) {
  if (size() == 1) {
    return;
  }
  if (values.size_bytes() <= kWholeBytes) {
    reduce_whole(values);
  } else {
    scatter_sums(values);
    gather_chunks(values);
  }
}

template <typename T>
void MessageComm::reduce_whole(std::span<T> values) {
  Bytes mine = to_bytes(std::span<const T>(values));
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_) {
      post(Channel::kCollective, peer, kReduceTag, mine);
    }
  }
  for (int peer = 0; peer < size(); ++peer) {
    const Bytes part =
        peer == rank_ ? std::move(mine) : take(Channel::kCollective, peer, kReduceTag);
    if (peer == 0) {
      copy_values(part, values);
    } else {
      add_values(part, values);
    }
  }
}

template <typename T>
std::span<T> MessageComm::chunk(std::span<T> values, int index) const {
  const auto [begin, end] = chunk_bounds(values.size(), size(), index);
  return values.subspan(begin, end - begin);
}

// By direct exchange: rank c sums chunk c in rank order.
template <typename T>
void MessageComm::scatter_sums(std::span<T> values) {
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank_ + step) % size();
    post(
        Channel::kCollective, peer, kScatterTag, to_bytes(std::span<const T>(chunk(values, peer))));
  }
  const std::span<T> sum = chunk(values, rank_);
  Bytes mine = to_bytes(std::span<const T>(sum));
  for (int peer = 0; peer < size(); ++peer) {
    const Bytes part =
        peer == rank_ ? std::move(mine) : take(Channel::kCollective, peer, kScatterTag);
    if (peer == 0) {
      copy_values(part, sum);
    } else {
      add_values(part, sum);
    }
  }
}

template <typename T>
void MessageComm::gather_chunks(std::span<T> values) {
  const std::span<const T> mine = chunk(values, rank_);
  for (int step = 1; step < size(); ++step) {
    post(Channel::kCollective, (rank_ + step) % size(), kChunkTag, to_bytes(mine));
  }
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank_ + size() - step) % size();
    copy_values(take(Channel::kCollective, peer, kChunkTag), chunk(values, peer));
  }
}

void MessageComm::reduce_scatter_sum(std::span<float> values) { scatter_sums(values); }
void MessageComm::all_gather_chunks(std::span<float> values) { gather_chunks(values); }

// A binomial tree: a rank at distance d from the root hears from d less its highest bit.
void MessageComm::broadcast(Bytes& message, int root) {
  check_peer(root, 0);
  const int distance = (rank_ + size() - root) % size();
  int step = 1;
  if (distance > 0) {
    const auto highest = static_cast<int>(std::bit_floor(static_cast<unsigned>(distance)));
    message = take(Channel::kCollective, (distance - highest + root) % size(), kBroadcastTag);
    step = 2 * highest;
  }
  for (; distance + step < size(); step *= 2) {
    post(Channel::kCollective, (distance + step + root) % size(), kBroadcastTag, message);
  }
}

std::vector<Bytes> MessageComm::all_gather(std::span<const std::byte> mine) {
  for (int step = 1; step < size(); ++step) {
    post(Channel::kCollective, (rank_ + step) % size(), kGatherTag, to_bytes(mine));
  }
  std::vector<Bytes> result(members_.size());
  result[static_cast<std::size_t>(rank_)] = to_bytes(mine);
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank_ + size() - step) % size();
    result[static_cast<std::size_t>(peer)] = take(Channel::kCollective, peer, kGatherTag);
  }
  return result;
}

void MessageComm::meet(const std::vector<int>& ranks, int index, int tag) {
  const int count = static_cast<int>(ranks.size());
  for (int distance = 1; distance < count; distance *= 2) {
    post(Channel::kCollective, ranks[(index + distance) % count], tag, {});
    take(Channel::kCollective, ranks[(index + count - distance) % count], tag);
  }
}

void MessageComm::barrier() {
  std::vector<int> all(members_.size());
  std::iota(all.begin(), all.end(), 0);
  meet(all, rank_, kBarrierTag);
}

std::unique_ptr<Comm> MessageComm::subgroup(const std::vector<int>& ranks) {
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  check(!sorted.empty() && sorted.front() >= 0 && sorted.back() < size() &&
            std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
        "the ranks of a sub-group must be distinct ranks of the group");
  const auto me = std::find(ranks.begin(), ranks.end(), rank_);
  check(me != ranks.end(), "a sub-group is entered by its members only");
  const int index = static_cast<int>(me - ranks.begin());
  // Meet first: a member that never comes is then reported by the time limit.
  meet(ranks, index, kSubgroupTag);
  return make_subgroup(ranks, index);
}

}  // namespace rpeg
