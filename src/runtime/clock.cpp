#include "runtime/clock.h"

#include <chrono>
#include <limits>

#include "runtime/message.h"

namespace rpeg {
namespace {

constexpr int kExchanges = 8;
constexpr int kTag = 1;

double monotonic_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void answer(Comm& comm, int rank, double start_s) {
  for (int i = 0; i < kExchanges; ++i) {
    comm.receive(rank, kTag);
    Bytes reply;
    append_value(reply, monotonic_s() - start_s);
    comm.send(rank, kTag, std::move(reply));
  }
}

/// Time on rank 0 = this machine's time + the result: its answer belongs to the middle of the
/// exchange (Cristian, "Probabilistic clock synchronization", 1989).
double measure_offset(Comm& comm) {
  double best_round_trip = std::numeric_limits<double>::infinity();
  double offset = 0.0;
  for (int i = 0; i < kExchanges; ++i) {
    const double asked = monotonic_s();
    comm.send(0, kTag, Bytes(1));
    const Bytes reply = comm.receive(0, kTag);
    const double answered = monotonic_s();
    if (answered - asked < best_round_trip) {
      best_round_trip = answered - asked;
      offset = MessageReader(reply).take<double>() - 0.5 * (asked + answered);
    }
  }
  return offset;
}

}  // namespace

RunClock::RunClock(Comm& comm) {
  comm.set_context("clock synchronisation");
  comm.barrier();
  const double start_s = monotonic_s();
  if (comm.rank() == 0) {
    offset_s_ = -start_s;
    for (int rank = 1; rank < comm.size(); ++rank) {
      answer(comm, rank, start_s);
    }
  } else {
    offset_s_ = measure_offset(comm);
  }
  comm.flush();
}

double RunClock::now_s() const { return monotonic_s() + offset_s_; }

}  // namespace rpeg
