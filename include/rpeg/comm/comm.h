#pragma once

/// Module `comm`: messages and collectives between the ranks of a job. One interface, two
/// implementations: threads of one process (loopback.h; tests and single-rank runs) and MPI
/// (mpi.h).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rpeg {

using Bytes = std::vector<std::byte>;

/// A group of ranks. Every wait has a time limit: when it passes, kRuntime says which rank waited
/// for which peer in which operation (`set_context`). Reductions add in rank order: the same values
/// give the same bits at any timing. One thread per rank may call.
class Comm {
 public:
  virtual ~Comm() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Starts sending and returns at once; the message is owned until it has left.
  virtual void send(int to, int tag, Bytes message) = 0;
  /// Waits for the next message of `from` with `tag`; messages of one pair and tag arrive in order.
  virtual Bytes receive(int from, int tag) = 0;
  /// True when the next message of `from` with `tag` is here: receiving it would not wait.
  virtual bool ready(int from, int tag) = 0;
  /// Announces one coming `receive(from, tag)`: where the transport can, the message is taken in
  /// while this rank computes. Changes nothing else.
  virtual void expect(int from, int tag) = 0;
  /// Waits until all sends have left.
  virtual void flush() = 0;

  /// values[i] ← Σ over ranks, in rank order; all ranks get the same bits.
  virtual void all_reduce_sum(std::span<float> values) = 0;
  virtual void all_reduce_sum(std::span<double> values) = 0;
  /// The first half of an all-reduce: this rank's chunk of `values` (`chunk_bounds`) becomes its
  /// sum over the ranks, with the bits that all_reduce_sum gives; the rest is left as it was.
  virtual void reduce_scatter_sum(std::span<float> values) = 0;
  /// The second half: every rank's chunk of `values` is copied to all others.
  virtual void all_gather_chunks(std::span<float> values) = 0;
  /// The message of rank `root` becomes everybody's.
  virtual void broadcast(Bytes& message, int root) = 0;
  /// Every rank's bytes, by rank; sizes may differ.
  virtual std::vector<Bytes> all_gather(std::span<const std::byte> mine) = 0;
  virtual void barrier() = 0;

  /// The sub-group of `ranks` (of this group, in the given order), entered by exactly those ranks.
  virtual std::unique_ptr<Comm> subgroup(const std::vector<int>& ranks) = 0;

  /// What the rank is doing, for time-out messages: "t_pi, iteration 7". Context and time limit
  /// are shared by a group and its sub-groups (of this rank).
  virtual void set_context(const std::string& context) = 0;
  /// Time limit of every wait, seconds; 60 until set.
  virtual void set_timeout(double seconds) = 0;
};

/// Elements [first, second) of `size` that rank `rank` of `ranks` holds between reduce_scatter_sum
/// and all_gather_chunks: nearly equal chunks in rank order.
std::pair<std::size_t, std::size_t> chunk_bounds(std::size_t size, int ranks, int rank);

/// Copies trivially copyable values to and from messages.
template <typename T>
void append_bytes(Bytes& out, std::span<const T> values) {
  const auto raw = std::as_bytes(values);
  out.insert(out.end(), raw.begin(), raw.end());
}

}  // namespace rpeg
