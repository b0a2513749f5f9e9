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
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) {
    return;
  }
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw Error(ErrorKind::kRuntime, fmt::format("{} failed: {}", call, text.data()));
}

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

struct PendingSend {
  MPI_Request request = MPI_REQUEST_NULL;
  Bytes piece;
};

class MpiComm : public MessageComm {
 public:
  /// Owns `comm` unless it is MPI_COMM_WORLD.
  MpiComm(MPI_Comm comm,
          int rank,
          std::vector<int> members,
          std::size_t piece_bytes,
          std::shared_ptr<WaitPolicy> policy)
      : MessageComm(rank, std::move(members), std::move(policy)),
        caller_(comm),
        piece_bytes_(piece_bytes) {
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
      // On the way out of an error nobody may be there to receive: do not wait.
      if (std::uncaught_exceptions() == 0) {
        flush();
        check_mpi(MPI_Comm_free(&collective_), "MPI_Comm_free");
        if (caller_ != MPI_COMM_WORLD) {
          check_mpi(MPI_Comm_free(&caller_), "MPI_Comm_free");
        }
      }
    } catch (const std::exception& error) {
      spdlog::error("closing a group of ranks: {}", error.what());
    }
    if (!sends_.empty()) {
      // MPI may still read these buffers: they must outlive this object.
      [[maybe_unused]] auto* abandoned = new std::vector<PendingSend>(std::move(sends_));
    }
  }

  MpiComm(const MpiComm&) = delete;
  MpiComm& operator=(const MpiComm&) = delete;

  void flush() override {
    Poll poll(timeout_s());
    for (reap(); !sends_.empty(); reap()) {
      if (!poll.pause()) {
        fail_flush(sends_.size());
      }
    }
  }

  /// World rank of the first rank that shares memory with this one.
  int node_leader() const {
    MPI_Comm node = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(caller_, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &node),
              "MPI_Comm_split_type");
    int leader = rank();
    check_mpi(MPI_Bcast(&leader, 1, MPI_INT, 0, node), "MPI_Bcast");
    check_mpi(MPI_Comm_free(&node), "MPI_Comm_free");
    return leader;
  }

 protected:
  // A message travels as pieces of at most piece_bytes_ (MPI counts are int); a full piece says
  // that another one follows.
  void post(Channel channel, int to, int tag, Bytes message) override {
    check(tag <= tag_limit_, fmt::format("message tag {} exceeds MPI's limit {}", tag, tag_limit_));
    reap();
    if (message.size() < piece_bytes_) {
      start(channel, to, tag, std::move(message));
      return;
    }
    for (std::size_t begin = 0; begin <= message.size(); begin += piece_bytes_) {
      const std::size_t end = std::min(begin + piece_bytes_, message.size());
      start(channel,
            to,
            tag,
            Bytes(message.begin() + static_cast<std::ptrdiff_t>(begin),
                  message.begin() + static_cast<std::ptrdiff_t>(end)));
    }
  }

  Bytes take(Channel channel, int from, int tag) override {
    Bytes message = take_piece(channel, from, tag);
    for (bool more = message.size() == piece_bytes_; more;) {
      const Bytes piece = take_piece(channel, from, tag);
      message.insert(message.end(), piece.begin(), piece.end());
      more = piece.size() == piece_bytes_;
    }
    return message;
  }

  bool has(Channel channel, int from, int tag) override {
    int found = 0;
    check_mpi(MPI_Iprobe(from, tag, comm_of(channel), &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
    return found != 0;
  }

  void announce(Channel, int, int) override {}

  std::unique_ptr<Comm> make_subgroup(const std::vector<int>& ranks, int my_rank) override {
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_group(caller_, &all), "MPI_Comm_group");
    check_mpi(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some),
              "MPI_Group_incl");
    check_mpi(MPI_Comm_create_group(caller_, some, 0, &comm), "MPI_Comm_create_group");
    check_mpi(MPI_Group_free(&some), "MPI_Group_free");
    check_mpi(MPI_Group_free(&all), "MPI_Group_free");
    return std::make_unique<MpiComm>(comm, my_rank, world_ranks(ranks), piece_bytes_, policy());
  }

 private:
  MPI_Comm comm_of(Channel channel) const {
    return channel == Channel::kCaller ? caller_ : collective_;
  }

  void start(Channel channel, int to, int tag, Bytes piece) {
    PendingSend& send = sends_.emplace_back(PendingSend{MPI_REQUEST_NULL, std::move(piece)});
    check_mpi(MPI_Isend(send.piece.data(),
                        static_cast<int>(send.piece.size()),
                        MPI_BYTE,
                        to,
                        tag,
                        comm_of(channel),
                        &send.request),
              "MPI_Isend");
  }

  Bytes take_piece(Channel channel, int from, int tag) {
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    int found = 0;
    const auto probe = [&] {
      check_mpi(MPI_Improbe(from, tag, comm_of(channel), &found, &handle, &status), "MPI_Improbe");
      return found != 0;
    };
    for (Poll poll(timeout_s()); !probe();) {
      if (!poll.pause()) {
        fail_wait(channel, from, tag);
      }
    }
    int size = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &size), "MPI_Get_count");
    Bytes piece(static_cast<std::size_t>(size));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Imrecv(piece.data(), size, MPI_BYTE, &handle, &request), "MPI_Imrecv");
    int done = 0;
    for (Poll poll(timeout_s()); done == 0;) {
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done == 0 && !poll.pause()) {
        [[maybe_unused]] auto* abandoned = new Bytes(std::move(piece));  // MPI may still write it
        fail_wait(channel, from, tag);
      }
    }
    return piece;
  }

  /// Forgets the sends that have completed.
  void reap() {
    std::erase_if(sends_, [](PendingSend& send) {
      int done = 0;
      check_mpi(MPI_Test(&send.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      return done != 0;
    });
  }

  MPI_Comm caller_ = MPI_COMM_NULL;
  MPI_Comm collective_ = MPI_COMM_NULL;
  std::size_t piece_bytes_;
  int tag_limit_ = 0;
  std::vector<PendingSend> sends_;
};

}  // namespace

MpiSession::MpiSession() {
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
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
  return std::make_unique<MpiComm>(
      MPI_COMM_WORLD, rank(), std::move(members), piece_bytes, std::make_shared<WaitPolicy>());
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
