#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rpeg/comm/comm.h"

namespace rpeg {

/// Messages of the caller and messages of collectives never match each other.
enum class Channel { kCaller, kCollective };

/// What a rank is doing and how long it may wait; shared by a group and its sub-groups.
struct WaitPolicy {
  std::string context;
  double timeout_s = 60.0;
};

/// The collectives, written once over ordered messages; a transport adds `post` and `take`. Both
/// implementations thereby add in the same order and fail with the same words.
class MessageComm : public Comm {
 public:
  /// `members`: world ranks of the group, by rank; used in messages to people.
  MessageComm(int rank, std::vector<int> members, std::shared_ptr<WaitPolicy> policy);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }

  void send(int to, int tag, Bytes message) override;
  Bytes receive(int from, int tag) override;
  bool ready(int from, int tag) override;
  void expect(int from, int tag) override;
  void all_reduce_sum(std::span<float> values) override;
  void all_reduce_sum(std::span<double> values) override;
  void reduce_scatter_sum(std::span<float> values) override;
  void all_gather_chunks(std::span<float> values) override;
  void broadcast(Bytes& message, int root) override;
  std::vector<Bytes> all_gather(std::span<const std::byte> mine) override;
  void barrier() override;
  std::unique_ptr<Comm> subgroup(const std::vector<int>& ranks) override;
  void set_context(const std::string& context) override { policy_->context = context; }
  void set_timeout(double seconds) override;

 protected:
  /// Starts sending; owns the message.
  virtual void post(Channel channel, int to, int tag, Bytes message) = 0;
  /// Waits for a message; calls `fail_wait` when the time limit passes.
  virtual Bytes take(Channel channel, int from, int tag) = 0;
  /// Whether the next such message is here.
  virtual bool has(Channel channel, int from, int tag) = 0;
  /// A message that will be taken; a transport may fetch it meanwhile.
  virtual void announce(Channel channel, int from, int tag) = 0;
  /// Makes the group of `ranks` once all of them are here; `my_rank` is the caller's index.
  virtual std::unique_ptr<Comm> make_subgroup(const std::vector<int>& ranks, int my_rank) = 0;

  [[noreturn]] void fail_wait(Channel channel, int from, int tag) const;
  [[noreturn]] void fail_flush(std::size_t messages) const;
  std::vector<int> world_ranks(const std::vector<int>& ranks) const;
  double timeout_s() const { return policy_->timeout_s; }
  const std::shared_ptr<WaitPolicy>& policy() const { return policy_; }

 private:
  void check_peer(int peer, int tag) const;
  /// Dissemination barrier of `ranks` (Hensgen, Finkel, Manber 1988); the caller is ranks[index].
  void meet(const std::vector<int>& ranks, int index, int tag);
  template <typename T>
  void reduce(std::span<T> values);
  template <typename T>
  void reduce_whole(std::span<T> values);
  template <typename T>
  void scatter_sums(std::span<T> values);
  template <typename T>
  void gather_chunks(std::span<T> values);
  template <typename T>
  std::span<T> chunk(std::span<T> values, int index) const;

  int rank_;
  std::vector<int> members_;
  std::shared_ptr<WaitPolicy> policy_;
};

}  // namespace rpeg
