#include "rpeg/comm/loopback.h"

#include <chrono>
#include <compare>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include "comm/message_comm.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

struct MessageKey {
  std::string group;
  Channel channel = Channel::kCaller;
  int from = 0;
  int tag = 0;
  auto operator<=>(const MessageKey&) const = default;
};

/// What has arrived for one rank of the process.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<MessageKey, std::deque<Bytes>> messages;
};

using Mailboxes = std::vector<Mailbox>;  // by world rank

class LoopbackComm : public MessageComm {
 public:
  LoopbackComm(std::shared_ptr<Mailboxes> boxes,
               std::string group,
               int rank,
               std::vector<int> members,
               std::shared_ptr<WaitPolicy> policy)
      : MessageComm(rank, members, std::move(policy)),
        boxes_(std::move(boxes)),
        group_(std::move(group)),
        members_(std::move(members)) {}

  void flush() override {}  // a message has left once it lies in the mailbox

 protected:
  void post(Channel channel, int to, int tag, Bytes message) override {
    Mailbox& box = mailbox(to);
    {
      const std::lock_guard lock(box.mutex);
      box.messages[MessageKey{group_, channel, rank(), tag}].push_back(std::move(message));
    }
    box.arrived.notify_all();
  }

  Bytes take(Channel channel, int from, int tag) override {
    Mailbox& box = mailbox(rank());
    const MessageKey key{group_, channel, from, tag};
    std::unique_lock lock(box.mutex);
    if (!box.arrived.wait_for(lock, std::chrono::duration<double>(timeout_s()), [&] {
          return box.messages.contains(key);
        })) {
      fail_wait(channel, from, tag);
    }
    const auto queue = box.messages.find(key);
    Bytes message = std::move(queue->second.front());
    queue->second.pop_front();
    if (queue->second.empty()) {
      box.messages.erase(queue);
    }
    return message;
  }

  bool has(Channel channel, int from, int tag) override {
    Mailbox& box = mailbox(rank());
    const std::lock_guard lock(box.mutex);
    return box.messages.contains(MessageKey{group_, channel, from, tag});
  }

  void announce(Channel, int, int) override {}  // the sender puts it into the mailbox itself

  std::unique_ptr<Comm> make_subgroup(const std::vector<int>& ranks, int my_rank) override {
    std::string name = group_ + "(";
    for (const int rank : ranks) {
      name += std::to_string(rank) + ",";
    }
    // Members create the groups of one list in the same order, so they count alike.
    name += ")#" + std::to_string(++created_[name]);
    return std::make_unique<LoopbackComm>(
        boxes_, std::move(name), my_rank, world_ranks(ranks), policy());
  }

 private:
  Mailbox& mailbox(int member) {
    return (*boxes_)[static_cast<std::size_t>(members_[static_cast<std::size_t>(member)])];
  }

  std::shared_ptr<Mailboxes> boxes_;
  std::string group_;
  std::vector<int> members_;
  std::map<std::string, int> created_;
};

}  // namespace

std::vector<std::unique_ptr<Comm>> make_loopback(int ranks) {
  check(ranks >= 1, "a loopback group needs at least one rank");
  const auto boxes = std::make_shared<Mailboxes>(static_cast<std::size_t>(ranks));
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::unique_ptr<Comm>> result;
  for (int rank = 0; rank < ranks; ++rank) {
    result.push_back(std::make_unique<LoopbackComm>(
        boxes, "world", rank, members, std::make_shared<WaitPolicy>()));
  }
  return result;
}

}  // namespace rpeg
