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

/// Rank 0's side of `exchange`, with the time that `now` reads.
template <typename Now>
void answer(Comm& comm, int rank, const Now& now) {
  for (int i = 0; i < kExchanges; ++i) {
    comm.receive(rank, kTag);
    Bytes reply;
    append_value(reply, now());
    comm.send(rank, kTag, std::move(reply));
  }
}

/// Time on rank 0 = this rank's time + offset: its answer belongs to the middle of the exchange,
/// and is wrong by half the round trip at most (Cristian, "Probabilistic clock synchronization",
/// 1989). The shortest exchange counts.
template <typename Now>
ClockSample exchange(Comm& comm, const Now& now) {
  ClockSample best{
      .at_s = 0.0, .offset_s = 0.0, .error_s = std::numeric_limits<double>::infinity()};
  for (int i = 0; i < kExchanges; ++i) {
    const double asked = now();
    comm.send(0, kTag, Bytes(1));
    const Bytes reply = comm.receive(0, kTag);
    const double answered = now();
    if (0.5 * (answered - asked) < best.error_s) {
      const double middle = 0.5 * (asked + answered);
      best = {.at_s = middle,
              .offset_s = MessageReader(reply).take<double>() - middle,
              .error_s = 0.5 * (answered - asked)};
    }
  }
  return best;
}

/// All ranks together; rank 0 is right by definition.
template <typename Now>
ClockSample synchronise(Comm& comm, const Now& now) {
  comm.set_context("clock synchronisation");
  comm.barrier();
  ClockSample sample{.at_s = now(), .offset_s = 0.0, .error_s = 0.0};
  if (comm.rank() == 0) {
    for (int rank = 1; rank < comm.size(); ++rank) {
      answer(comm, rank, now);
    }
  } else {
    sample = exchange(comm, now);
  }
  comm.flush();
  return sample;
}

}  // namespace

RunClock::RunClock(Comm& comm) {
  const double start_s = monotonic_s();
  const bool is_first = comm.rank() == 0;
  const auto now = [&] { return monotonic_s() - (is_first ? start_s : 0.0); };
  const ClockSample sample = synchronise(comm, now);
  offset_s_ = is_first ? -start_s : sample.offset_s;
  const double at_s = is_first ? sample.at_s : sample.at_s + sample.offset_s;
  start_ = {.at_s = at_s, .offset_s = 0.0, .error_s = sample.error_s};
}

double RunClock::now_s() const { return monotonic_s() + offset_s_; }

ClockSample RunClock::measure(Comm& comm) const {
  return synchronise(comm, [this] { return now_s(); });
}

}  // namespace rpeg
