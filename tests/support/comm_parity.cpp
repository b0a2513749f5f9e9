#include "support/comm_parity.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>

#include "rpeg/base/error.h"

namespace rpeg::test {
namespace {

Bytes text_bytes(const std::string& text) {
  Bytes bytes;
  append_bytes(bytes, std::span<const char>(text));
  return bytes;
}

std::string bytes_text(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Values whose float sum depends on the order of addition.
float awkward_value(int rank, std::size_t i) {
  const double phase = 1.7 * rank + 0.37 * static_cast<double>(i);
  return static_cast<float>(std::sin(phase) * std::pow(10.0, (rank * 5 + static_cast<int>(i)) % 7));
}

std::vector<int> reversed_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.rbegin(), ranks.rend(), 0);
  return ranks;
}

}  // namespace

void expect_predictable_sums(Comm& comm) {
  // Rank r holds (r + 1)(i + 1): the sum over p ranks is (i + 1) p (p + 1) / 2, exact in both
  // types.
  for (const std::size_t size : {0U, 1U, 3U, 1000U, 5003U}) {
    std::vector<double> doubles(size);
    std::vector<float> floats(size);
    for (std::size_t i = 0; i < size; ++i) {
      doubles[i] = (comm.rank() + 1.0) * static_cast<double>(i + 1);
      floats[i] = static_cast<float>(doubles[i]);
    }
    comm.all_reduce_sum(std::span<double>(doubles));
    comm.all_reduce_sum(std::span<float>(floats));
    const double ranks = comm.size() * (comm.size() + 1) / 2.0;
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_EQ(doubles[i], ranks * static_cast<double>(i + 1))
          << "element " << i << " of " << size;
      ASSERT_EQ(floats[i], static_cast<float>(ranks * static_cast<double>(i + 1)));
    }
  }
}

void expect_sums_in_rank_order(Comm& comm) {
  for (const std::size_t size : {7U, 1000U, 4099U}) {  // whole exchange and chunks
    std::vector<float> values(size);
    std::vector<float> expected(size);
    for (std::size_t i = 0; i < size; ++i) {
      values[i] = awkward_value(comm.rank(), i);
      expected[i] = awkward_value(0, i);
      for (int rank = 1; rank < comm.size(); ++rank) {
        expected[i] += awkward_value(rank, i);
      }
    }
    comm.all_reduce_sum(std::span<float>(values));
    ASSERT_EQ(std::memcmp(values.data(), expected.data(), size * sizeof(float)), 0)
        << size << " values";
  }
}

void expect_messages_in_order(Comm& comm) {
  const int next = (comm.rank() + 1) % comm.size();
  const int previous = (comm.rank() + comm.size() - 1) % comm.size();
  for (int i = 0; i < 20; ++i) {
    for (const int tag : {3, 4}) {
      comm.send(next,
                tag,
                text_bytes(std::string(static_cast<std::size_t>(i), 'x') + std::to_string(i) + "/" +
                           std::to_string(tag)));
    }
  }
  // The other tag first: messages of one tag do not block those of another.
  for (const int tag : {4, 3}) {
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(bytes_text(comm.receive(previous, tag)),
                std::string(static_cast<std::size_t>(i), 'x') + std::to_string(i) + "/" +
                    std::to_string(tag));
    }
  }
  // Large messages to all before anyone receives: sends never block.
  const std::size_t large = 300'000;
  for (int peer = 0; peer < comm.size(); ++peer) {
    comm.send(peer, 9, Bytes(large, static_cast<std::byte>(comm.rank() + 1)));
  }
  for (int peer = 0; peer < comm.size(); ++peer) {
    EXPECT_EQ(comm.receive(peer, 9), Bytes(large, static_cast<std::byte>(peer + 1)));
  }
  comm.flush();
}

void expect_all_reduce_in_two_halves(Comm& comm) {
  for (const std::size_t size : {0U, 1U, 7U, 4099U}) {
    std::vector<float> whole(size);
    for (std::size_t i = 0; i < size; ++i) {
      whole[i] = awkward_value(comm.rank(), i);
    }
    std::vector<float> halves = whole;
    const std::vector<float> mine = whole;
    comm.all_reduce_sum(std::span<float>(whole));
    comm.reduce_scatter_sum(halves);
    const auto [begin, end] = chunk_bounds(size, comm.size(), comm.rank());
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_EQ(halves[i], i >= begin && i < end ? whole[i] : mine[i]) << i << " of " << size;
    }
    comm.all_gather_chunks(halves);
    ASSERT_EQ(halves, whole) << size << " values";
  }
}

void expect_broadcast_from_every_root(Comm& comm) {
  for (int root = 0; root < comm.size(); ++root) {
    for (const std::size_t size : {0U, 5U, 250'000U}) {
      const Bytes expected(size, static_cast<std::byte>(root + 1));
      Bytes message = comm.rank() == root ? expected : text_bytes("to be replaced");
      comm.broadcast(message, root);
      ASSERT_EQ(message, expected) << "root " << root;
    }
  }
}

void expect_announced_messages(Comm& comm) {
  const int next = (comm.rank() + 1) % comm.size();
  const int previous = (comm.rank() + comm.size() - 1) % comm.size();
  EXPECT_FALSE(comm.ready(previous, 6));
  comm.barrier();  // nobody has sent yet
  comm.expect(previous, 6);
  comm.expect(previous, 6);
  const std::size_t large = 300'000;
  comm.send(next, 6, Bytes(large, std::byte{1}));
  comm.send(next, 6, text_bytes("second"));
  comm.send(next, 6, text_bytes("not announced"));
  const auto start = std::chrono::steady_clock::now();
  while (!comm.ready(previous, 6) &&
         std::chrono::steady_clock::now() - start < std::chrono::seconds(10)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(comm.ready(previous, 6));
  EXPECT_FALSE(comm.ready(previous, 7));
  EXPECT_EQ(comm.receive(previous, 6), Bytes(large, std::byte{1}));
  EXPECT_EQ(bytes_text(comm.receive(previous, 6)), "second");
  EXPECT_EQ(bytes_text(comm.receive(previous, 6)), "not announced");
  comm.flush();
}

void expect_uneven_all_gather(Comm& comm) {
  const std::string mine(static_cast<std::size_t>(comm.rank() * 3),
                         static_cast<char>('a' + comm.rank()));
  const std::vector<Bytes> all = comm.all_gather(std::as_bytes(std::span(mine)));
  ASSERT_EQ(all.size(), static_cast<std::size_t>(comm.size()));
  for (int rank = 0; rank < comm.size(); ++rank) {
    EXPECT_EQ(bytes_text(all[static_cast<std::size_t>(rank)]),
              std::string(static_cast<std::size_t>(rank * 3), static_cast<char>('a' + rank)));
  }
}

void expect_permuted_subgroups(Comm& comm) {
  const auto reversed = comm.subgroup(reversed_ranks(comm.size()));
  EXPECT_EQ(reversed->size(), comm.size());
  EXPECT_EQ(reversed->rank(), comm.size() - 1 - comm.rank());
  expect_sums_in_rank_order(*reversed);
  expect_messages_in_order(*reversed);

  // Even and odd ranks at the same time, highest first; then a group inside that group.
  std::vector<int> half;
  for (int rank = comm.size() - 1; rank >= 0; --rank) {
    if (rank % 2 == comm.rank() % 2) {
      half.push_back(rank);
    }
  }
  const auto group = comm.subgroup(half);
  ASSERT_EQ(group->size(), static_cast<int>(half.size()));
  EXPECT_EQ(half[static_cast<std::size_t>(group->rank())], comm.rank());
  expect_predictable_sums(*group);
  expect_uneven_all_gather(*group->subgroup(reversed_ranks(group->size())));

  // Messages of different groups do not meet, though peer and tag agree.
  const int peer = comm.size() - 1 - comm.rank();
  comm.send(peer, 1, text_bytes("world"));
  reversed->send(comm.rank(), 1, text_bytes("reversed"));  // the same process: ranks are mirrored
  EXPECT_EQ(bytes_text(reversed->receive(comm.rank(), 1)), "reversed");
  EXPECT_EQ(bytes_text(comm.receive(peer, 1)), "world");
}

void expect_barrier_waits_for_all(Comm& comm) {
  for (int round = 0; round < 20; ++round) {
    comm.barrier();
  }
  // All ranks share one monotonic clock: nobody leaves before the last has entered.
  const auto now_s = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(4 * comm.rank()));
  std::array<double, 2> times{now_s(), 0.0};
  comm.barrier();
  times[1] = now_s();
  double last_in = 0.0;
  double first_out = times[1];
  for (const Bytes& bytes : comm.all_gather(std::as_bytes(std::span(times)))) {
    std::array<double, 2> other{};
    std::memcpy(other.data(), bytes.data(), sizeof(other));
    last_in = std::max(last_in, other[0]);
    first_out = std::min(first_out, other[1]);
  }
  EXPECT_LE(last_in, first_out);
}

void expect_timeout_text(Comm& comm) {
  comm.barrier();
  const auto group = comm.subgroup(reversed_ranks(comm.size()));
  comm.set_context("t_pi, iteration 7");
  comm.set_timeout(0.05);
  const auto message_of = [](auto&& body) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const std::string me = std::to_string(comm.rank());
  EXPECT_THAT(message_of([&] { comm.receive(0, 17); }),
              testing::HasSubstr("rank " + me +
                                 " waited 0.05 s for a message of rank 0 (tag 17) in "
                                 "t_pi, iteration 7"));
  // In a sub-group: its own numbering is translated to world ranks; context and limit are shared.
  EXPECT_THAT(
      message_of([&] { group->receive(0, 5); }),
      testing::HasSubstr("rank " + me + " waited 0.05 s for a message of rank " +
                         std::to_string(comm.size() - 1) + " (tag 5) in t_pi, iteration 7"));
  comm.set_context("");
  comm.set_timeout(20.0);
  comm.barrier();
  if (comm.size() > 1 && comm.rank() == 0) {
    comm.set_timeout(0.05);  // nobody else comes, but the message that was sent stays valid
    EXPECT_THAT(message_of([&] { comm.barrier(); }),
                testing::HasSubstr("rank 0 waited 0.05 s for rank " +
                                   std::to_string(comm.size() - 1) + " in barrier"));
  }
  comm.set_timeout(20.0);
}

}  // namespace rpeg::test
