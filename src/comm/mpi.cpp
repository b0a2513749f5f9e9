#include "rpeg/comm/mpi.h"

#include <fmt/format.h>
#include <mpi.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>

#include "comm/message_comm.h"
#include "comm/mpi_progress.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// Paces a polling loop: yields while an answer is likely to be near, then sleeps so that a rank
/// that waits for long leaves its core to the others.
class Poll {
 public:
  explicit Poll(double timeout_s) : start_(Clock::now()), timeout_s_(timeout_s) {}

  /// Returns false when the time limit has passed.
  bool pause() {
    const double waited_s = std::chrono::duration<double>(Clock::now() - start_).count();
    if (waited_s > timeout_s_) {
      return false;
    }
    if (waited_s < 2e-3) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(waited_s < 0.5 ? 20 : 500));
    }
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
  double timeout_s_;
};

class MpiComm : public MessageComm {
 public:
  /// Owns `comm` unless it is MPI_COMM_WORLD.
  MpiComm(MPI_Comm comm,
          int rank,
          std::vector<int> members,
          std::shared_ptr<MpiProgress> progress,
          std::shared_ptr<WaitPolicy> policy)
      : MessageComm(rank, std::move(members), std::move(policy)),
        caller_(comm),
        progress_(std::move(progress)) {
    const std::lock_guard lock(progress_->mutex());
    check_mpi(MPI_Comm_set_errhandler(caller_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_dup(caller_, &collective_), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(collective_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    void* value = nullptr;
    int found = 0;
    check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr");
    tag_limit_ = found != 0 ? *static_cast<int*>(value) : 32767;
  }

  ~MpiComm() override {
    try {
      progress_->forget(caller_);
      progress_->forget(collective_);
      // On the way out of an error nobody may be there to receive: do not wait.
      if (std::uncaught_exceptions() == 0) {
        flush();
        const std::lock_guard lock(progress_->mutex());
        check_mpi(MPI_Comm_free(&collective_), "MPI_Comm_free");
        if (caller_ != MPI_COMM_WORLD) {
          check_mpi(MPI_Comm_free(&caller_), "MPI_Comm_free");
        }
      }
    } catch (const std::exception& error) {
      spdlog::error("closing a group of ranks: {}", error.what());
    }
  }

  MpiComm(const MpiComm&) = delete;
  MpiComm& operator=(const MpiComm&) = delete;

  void flush() override {
    const auto pending = [&] {
      return progress_->pending_sends(caller_) + progress_->pending_sends(collective_);
    };
    Poll poll(timeout_s());
    for (std::size_t left = pending(); left > 0; left = pending()) {
      if (!poll.pause()) {
        fail_flush(left);
      }
    }
  }

  /// World rank of the first rank that shares memory with this one.
  int node_leader() const {
    const std::lock_guard lock(progress_->mutex());
    MPI_Comm node = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(caller_, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &node),
              "MPI_Comm_split_type");
    int leader = rank();
    check_mpi(MPI_Bcast(&leader, 1, MPI_INT, 0, node), "MPI_Bcast");
    check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
    return leader;
  }

 protected:
  void post(Channel channel, int to, int tag, Bytes message) override {
    check(tag <= tag_limit_, fmt::format("message tag {} exceeds MPI's limit {}", tag, tag_limit_));
    progress_->send(comm_of(channel), to, tag, std::move(message));
  }

  Bytes take(Channel channel, int from, int tag) override {
    const MpiChannel source{comm_of(channel), from, tag};
    Bytes message;
    for (Poll poll(timeout_s()); !progress_->try_take(source, message);) {
      if (!poll.pause()) {
        progress_->give_up(source);
        fail_wait(channel, from, tag);
      }
    }
    return message;
  }

  bool has(Channel channel, int from, int tag) override {
    return progress_->is_here({comm_of(channel), from, tag});
  }

  void announce(Channel channel, int from, int tag) override {
    progress_->expect({comm_of(channel), from, tag});
  }

  std::unique_ptr<Comm> make_subgroup(const std::vector<int>& ranks, int my_rank) override {
    std::unique_lock lock(progress_->mutex());
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_group(caller_, &all), "MPI_Comm_group");
    check_mpi(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some),
              "MPI_Group_incl");
    check_mpi(MPI_Comm_create_group(caller_, some, 0, &comm), "MPI_Comm_create_group");
    check_mpi(MPI_Group_free(&some), "MPI_Group_free");
    check_mpi(MPI_Group_free(&all), "MPI_Group_free");
    lock.unlock();
    return std::make_unique<MpiComm>(comm, my_rank, world_ranks(ranks), progress_, policy());
  }

 private:
  MPI_Comm comm_of(Channel channel) const {
    return channel == Channel::kCaller ? caller_ : collective_;
  }

  MPI_Comm caller_ = MPI_COMM_NULL;
  MPI_Comm collective_ = MPI_COMM_NULL;
  std::shared_ptr<MpiProgress> progress_;  ///< of the process
  int tag_limit_ = 0;
};

}  // namespace

MpiSession::MpiSession() {
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_SERIALIZED) {
    throw Error(
        ErrorKind::kRuntime,
        fmt::format("this MPI library offers thread level {}, and messages that move while a "
                    "rank computes need MPI_THREAD_SERIALIZED ({}): use one that was built "
                    "with thread support",
                    provided,
                    static_cast<int>(MPI_THREAD_SERIALIZED)));
  }
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

MpiSession::~MpiSession() {
  // Finalising waits for all ranks. On the way out of an error the launcher ends them instead.
  if (std::uncaught_exceptions() == 0) {
    MPI_Finalize();
  }
}

std::unique_ptr<Comm> MpiSession::world(std::size_t piece_bytes) {
  check(piece_bytes >= 1 && piece_bytes <= kLargestPieceBytes, "MPI piece size out of range");
  std::vector<int> members(static_cast<std::size_t>(size()));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<MpiComm>(MPI_COMM_WORLD,
                                   rank(),
                                   std::move(members),
                                   std::make_shared<MpiProgress>(piece_bytes),
                                   std::make_shared<WaitPolicy>());
}

int MpiSession::rank() const {
  int rank = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  return rank;
}

int MpiSession::size() const {
  int size = 0;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  return size;
}

void MpiSession::abort(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);  // MPI_Abort does not return; the compiler cannot know
}

std::string MpiSession::library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check_mpi(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  return text.data();  // some libraries count the final zero in `length`
}

std::vector<RankLocation> discover_locations(Comm& world,
                                             int racks,
                                             const std::string& topology_address) {
  // The ranks of a loopback group share one process, hence one node.
  const auto* mpi = dynamic_cast<const MpiComm*>(&world);
  const int leader = mpi != nullptr ? mpi->node_leader() : 0;
  Bytes mine;
  append_bytes(mine, std::span<const int>(&leader, 1));
  append_bytes(mine, std::span<const char>(topology_address));
  std::vector<RankHost> hosts;
  for (const Bytes& bytes : world.all_gather(mine)) {
    RankHost& host = hosts.emplace_back();
    const auto* chars = reinterpret_cast<const char*>(bytes.data());
    std::copy_n(chars, sizeof(int), reinterpret_cast<char*>(&host.node_leader));
    host.topology_address.assign(chars + sizeof(int), bytes.size() - sizeof(int));
  }
  return assign_locations(hosts, racks);
}

}  // namespace rpeg
