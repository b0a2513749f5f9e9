#pragma once

#include <mpi.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "rpeg/comm/comm.h"

namespace rpeg {

/// Throws kRuntime with MPI's words unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

/// Messages from one rank with one tag in one MPI communicator; they arrive in order.
struct MpiChannel {
  MPI_Comm comm = MPI_COMM_NULL;
  int from = 0;
  int tag = 0;
};

/// All messages of a process that are under way. A thread of its own advances them while the rank
/// computes: sends leave, and messages that were announced are taken into an inbox. It sleeps when
/// nothing is under way, and looks every millisecond or so otherwise.
///
/// One mutex keeps the rank's thread and this one apart, so MPI_THREAD_SERIALIZED is all that MPI
/// has to provide. Matching is by (communicator, sender, tag) only, never by arrival: what a rank
/// receives does not depend on timing.
class MpiProgress {
 public:
  /// A message travels as pieces of at most `piece_bytes` (MPI counts are int); a full piece says
  /// that another one follows.
  explicit MpiProgress(std::size_t piece_bytes);
  /// Ends the thread. On the way out of an error buffers that MPI may still use outlive this.
  ~MpiProgress();
  MpiProgress(const MpiProgress&) = delete;
  MpiProgress& operator=(const MpiProgress&) = delete;

  void send(MPI_Comm comm, int to, int tag, Bytes message);
  /// Announces one message of the channel.
  void expect(const MpiChannel& channel);
  /// Takes the next message of the channel if it is here.
  bool try_take(const MpiChannel& channel, Bytes& message);
  /// Whether try_take would succeed or the message is on its way in.
  bool is_here(const MpiChannel& channel);
  /// Forgets an announced message that has not begun to arrive: the wait for it has failed.
  void give_up(const MpiChannel& channel);
  /// Sends over `comm` that have not left.
  std::size_t pending_sends(MPI_Comm comm);
  /// Forgets what was announced over a communicator that is about to be freed.
  void forget(MPI_Comm comm);

  /// For other MPI calls of this process.
  std::mutex& mutex() { return mutex_; }

 private:
  struct Send {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    Bytes piece;
  };
  /// A message that is awaited.
  struct Receive {
    MpiChannel channel;
    Bytes message;  ///< the pieces so far
    Bytes piece;    ///< the one that is coming in
    MPI_Request request = MPI_REQUEST_NULL;
    bool is_coming = false;
  };
  using Key = std::tuple<int, int, int>;  // communicator (MPI_Comm_c2f), sender, tag

  static Key key_of(const MpiChannel& channel);
  bool is_expected(const MpiChannel& channel) const;
  void start(MPI_Comm comm, int to, int tag, Bytes piece);
  /// True when the message is complete.
  bool advance(Receive& receive);
  void advance_all();
  void run();

  std::size_t piece_bytes_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Send> sends_;
  std::list<Receive> receives_;  ///< in the order of their announcement
  std::map<Key, std::deque<Bytes>> inbox_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace rpeg
