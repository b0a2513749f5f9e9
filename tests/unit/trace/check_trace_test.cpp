#include "rpeg/trace/check_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "rpeg/base/rng.h"
#include "support/random_job.h"
#include "support/test_directory.h"
#include "support/virtual_run.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// What the checker says of a trace that is written and read again.
std::vector<TraceViolation> check_files(const Job& job, const Trace& trace) {
  const fs::path directory = test::test_directory() / "checked";
  fs::remove_all(directory);
  save_trace(trace, directory);
  return check_trace(job, load_trace(directory));
}

/// An event by rank and place in the rank's file.
struct Place {
  RankTrace* rank = nullptr;
  std::size_t at = 0;
  TraceEvent& event() const { return rank->events[at]; }
};

Place random_place(Trace& trace, Rng& rng) {
  while (true) {
    const auto r = rng.below(static_cast<std::int64_t>(trace.ranks.size()));
    RankTrace& rank = trace.ranks[static_cast<std::size_t>(r)];
    if (!rank.events.empty()) {
      const auto at = rng.below(static_cast<std::int64_t>(rank.events.size()));
      return {&rank, static_cast<std::size_t>(at)};
    }
  }
}

std::ptrdiff_t offset(std::size_t at) { return static_cast<std::ptrdiff_t>(at); }

void move_event(TraceEvent& event, double seconds) {
  event.start_s += seconds;
  event.end_s += seconds;
}

using Mutate = std::function<bool(Trace&, Rng&)>;  ///< false: not possible in this trace

bool drop(Trace& trace, Rng& rng) {
  const Place place = random_place(trace, rng);
  place.rank->events.erase(place.rank->events.begin() + offset(place.at));
  return true;
}

bool duplicate(Trace& trace, Rng& rng) {
  const Place place = random_place(trace, rng);
  const TraceEvent copy = place.event();
  place.rank->events.insert(place.rank->events.begin() + offset(place.at), copy);
  return true;
}

/// Two neighbours of a file change places, with or without their times.
bool reorder(Trace& trace, Rng& rng) {
  const Place place = random_place(trace, rng);
  if (place.at + 1 >= place.rank->events.size()) {
    return false;
  }
  TraceEvent& first = place.event();
  TraceEvent& second = place.rank->events[place.at + 1];
  const bool both_drained = first.kind == "receive_weights" && second.kind == "receive_weights";
  std::swap(first, second);
  if (!both_drained && rng.below(2) == 0) {
    std::swap(first.start_s, second.start_s);
    std::swap(first.end_s, second.end_s);
    std::swap(first.waited_s, second.waited_s);
  }
  return true;
}

/// One event into the one before or after it.
bool shift_event(Trace& trace, Rng& rng) {
  const Place place = random_place(trace, rng);
  const double beyond_s = 1e-6 + 0.1 * rng.uniform();
  TraceEvent& event = place.event();
  if (rng.below(2) == 0) {
    if (place.at == 0) {
      return false;
    }
    const TraceEvent& before = place.rank->events[place.at - 1];
    move_event(event, before.end_s - (event.start_s - event.waited_s) - beyond_s);
    return true;
  }
  if (place.at + 1 >= place.rank->events.size()) {
    return false;
  }
  const TraceEvent& after = place.rank->events[place.at + 1];
  move_event(event, after.start_s - after.waited_s - event.end_s + beyond_s);
  return true;
}

/// All of a rank that gets messages, to before anything was sent to it.
bool shift_rank(Trace& trace, Rng& rng) {
  const Place place = random_place(trace, rng);
  double last_s = 0.0;
  bool receives = false;
  for (const TraceEvent& event : place.rank->events) {
    last_s = std::max(last_s, event.end_s);
    receives |= event.bytes > 0 && event.kind.starts_with("receive") && event.peer != event.rank;
  }
  for (TraceEvent& event : place.rank->events) {
    move_event(event, -last_s - 1.0);
  }
  return receives;
}

/// The event that sent what `received` tells of; nullptr when there is none.
TraceEvent* sender_of(Trace& trace, const TraceEvent& received) {
  for (TraceEvent& sent : trace.ranks[static_cast<std::size_t>(received.peer)].events) {
    if (sent.kind == "send" && sent.peer == received.rank && sent.vertex == received.vertex &&
        sent.iteration == received.iteration && sent.bytes == received.bytes) {
      return &sent;
    }
  }
  return nullptr;
}

/// Calls `change(before, received, sent)` for messages of data between ranks, from a random one on,
/// until it returns true.
template <typename Change>
bool change_a_message(Trace& trace, Rng& rng, const Change& change) {
  std::vector<std::pair<TraceEvent*, TraceEvent*>> received;
  for (RankTrace& rank : trace.ranks) {
    for (std::size_t at = 1; at < rank.events.size(); ++at) {
      if (rank.events[at].kind == "receive" && rank.events[at].bytes > 0) {
        received.emplace_back(&rank.events[at - 1], &rank.events[at]);
      }
    }
  }
  const std::size_t first =
      received.empty()
          ? 0
          : static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(received.size())));
  for (std::size_t i = 0; i < received.size(); ++i) {
    const auto [before, event] = received[(first + i) % received.size()];
    TraceEvent* sent = sender_of(trace, *event);
    if (sent != nullptr && change(*before, *event, *sent)) {
      return true;
    }
  }
  return false;
}

/// A message that arrives just before it was sent.
bool receive_early(Trace& trace, Rng& rng) {
  return change_a_message(trace, rng, [](TraceEvent& before, TraceEvent& event, TraceEvent& sent) {
    if (sent.start_s < before.end_s + 1e-3) {
      return false;
    }
    event.waited_s = 0.0;
    event.start_s = event.end_s = sent.start_s - 2e-4;
    return true;
  });
}

/// Both ends of a message say the same wrong number. (What the reference of online DPO sends
/// depends on rewards, too.)
bool change_bytes_of_both_ends(Trace& trace, Rng& rng) {
  return change_a_message(trace, rng, [](TraceEvent&, TraceEvent& event, TraceEvent& sent) {
    if (event.vertex == "i_ref") {
      return false;
    }
    event.bytes -= 4;
    sent.bytes -= 4;
    return true;
  });
}

bool change_version(Trace& trace, Rng& rng) {
  TraceEvent& event = random_place(trace, rng).event();
  (rng.below(4) == 0 ? event.written : event.version) += rng.below(2) == 0 ? 1 : -1;
  return true;
}

bool change_bytes(Trace& trace, Rng& rng) {
  TraceEvent& event = random_place(trace, rng).event();
  event.bytes += (rng.below(2) == 0 ? 1 : -1) * (1 + rng.below(64));
  return true;
}

bool change_rank(Trace& trace, Rng& rng) {
  if (trace.ranks.size() < 2) {
    return false;
  }
  TraceEvent& event = random_place(trace, rng).event();
  event.rank = (event.rank + 1) % static_cast<std::int32_t>(trace.ranks.size());
  return true;
}

/// An event into the file of another rank, as that rank's.
bool move_to_rank(Trace& trace, Rng& rng) {
  const Place from = random_place(trace, rng);
  const Place to = random_place(trace, rng);
  if (from.rank == to.rank) {
    return false;
  }
  TraceEvent moved = from.event();
  from.rank->events.erase(from.rank->events.begin() + offset(from.at));
  moved.rank = to.rank->rank;
  to.rank->events.insert(to.rank->events.begin() + offset(to.at), moved);
  return true;
}

bool change_peer(Trace& trace, Rng& rng) {
  TraceEvent& event = random_place(trace, rng).event();
  event.peer = event.peer < 0 ? 0 : event.peer + 1;
  return true;
}

bool change_iteration(Trace& trace, Rng& rng) {
  TraceEvent& event = random_place(trace, rng).event();
  event.iteration += rng.below(2) == 0 ? 1 : -1;
  return true;
}

bool change_instruction(Trace& trace, Rng& rng) {
  TraceEvent& event = random_place(trace, rng).event();
  event.instruction += rng.below(2) == 0 ? 1 : -1;
  return true;
}

bool change_what(Trace& trace, Rng& rng) {
  TraceEvent& event = random_place(trace, rng).event();
  (rng.below(2) == 0 ? event.kind : event.vertex) += "x";
  return true;
}

bool drop_rollout(Trace& trace, Rng& rng) {
  RankTrace& rank = *random_place(trace, rng).rank;
  if (rank.rollouts.empty()) {
    return false;
  }
  rank.rollouts.erase(rank.rollouts.begin() +
                      rng.below(static_cast<std::int64_t>(rank.rollouts.size())));
  return true;
}

bool repeat_sequence(Trace& trace, Rng& rng) {
  RankTrace& rank = *random_place(trace, rng).rank;
  if (rank.rollouts.empty() || rank.rollouts.front().sequences.size() < 2) {
    return false;
  }
  rank.rollouts.front().sequences[0].sequence = rank.rollouts.front().sequences[1].sequence;
  return true;
}

bool drop_rank(Trace& trace, Rng& rng) {
  trace.ranks.erase(trace.ranks.begin() + rng.below(static_cast<std::int64_t>(trace.ranks.size())));
  return !trace.ranks.empty();
}

bool drop_last_iteration_of_a_rank(Trace& trace, Rng& rng) {
  RankTrace& rank = *random_place(trace, rng).rank;
  const std::int64_t last = rank.events.back().iteration;
  std::erase_if(rank.events, [&](const TraceEvent& event) { return event.iteration == last; });
  return trace.ranks.size() > 1;
}

const std::vector<std::pair<const char*, Mutate>>& mutations() {
  static const std::vector<std::pair<const char*, Mutate>> kMutations = {
      {"drop", drop},
      {"duplicate", duplicate},
      {"reorder", reorder},
      {"shift an event", shift_event},
      {"shift a rank", shift_rank},
      {"receive early", receive_early},
      {"version", change_version},
      {"bytes", change_bytes},
      {"bytes of both ends", change_bytes_of_both_ends},
      {"rank", change_rank},
      {"move to a rank", move_to_rank},
      {"peer", change_peer},
      {"iteration", change_iteration},
      {"instruction", change_instruction},
      {"kind or task", change_what},
      {"drop rollouts", drop_rollout},
      {"repeat a sequence", repeat_sequence},
      {"drop a rank", drop_rank},
      {"drop the end of a rank", drop_last_iteration_of_a_rank}};
  return kMutations;
}

TEST(CheckTrace, AcceptsValidRuns) {
  Rng rng(11);
  int with_several_ranks = 0;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const Job job = test::random_job(rng);
    with_several_ranks += job.ranks.size() > 1 ? 1 : 0;
    const Trace trace = virtual_run(job, {.iterations = 3, .seed = i});
    const auto violations = check_files(job, trace);
    EXPECT_TRUE(violations.empty()) << "run " << i << ":\n" << violations_text(violations);
  }
  EXPECT_GT(with_several_ranks, 40);
}

TEST(CheckTrace, DetectsMutations) {
  constexpr int kEach = 12;
  constexpr int kTries = 300;
  Rng rng(12);
  int count = 0;
  for (const auto& [name, mutate] : mutations()) {
    int done = 0;
    for (int i = 0; i < kTries && done < kEach; ++i) {
      const Job job = test::random_job(rng);
      Trace trace = virtual_run(job, {.iterations = 3, .seed = rng.next()});
      if (mutate(trace, rng)) {
        ++done;
        EXPECT_FALSE(check_files(job, trace).empty()) << name << ", try " << i;
      }
    }
    EXPECT_EQ(done, kEach) << name;
    count += done;
  }
  EXPECT_GE(count, 200);
}

TEST(CheckTrace, NamesBothEvents) {
  Rng rng(3);
  for (int i = 0; i < 100; ++i) {
    const Job job = test::random_job(rng);
    Trace trace = virtual_run(job, {.iterations = 2, .seed = 1});
    if (receive_early(trace, rng)) {
      const std::string text = violations_text(check_trace(job, trace));
      EXPECT_THAT(text, HasSubstr("causality: received before it was sent"));
      EXPECT_THAT(text, HasSubstr("(receive "));
      EXPECT_THAT(text, HasSubstr("(send "));
      return;
    }
  }
  FAIL() << "no message to receive early";
}

TEST(CheckTrace, TellsATraceOfAnotherPlan) {
  Rng rng(4);
  const Job job = test::random_job(rng);
  Trace trace = virtual_run(job, {.iterations = 2, .seed = 1});
  for (RankTrace& rank : trace.ranks) {
    rank.plan_digest = "other";
  }
  EXPECT_THAT(violations_text(check_trace(job, trace)), HasSubstr("is of another plan, other"));
}

TEST(CheckTrace, WantsAClockThatTellsOrder) {
  Rng rng(5);
  const Job job = test::random_job(rng);
  Trace trace = virtual_run(job, {.iterations = 2, .seed = 1});
  trace.ranks.back().clock_error_s = 0.1;
  EXPECT_THAT(violations_text(check_trace(job, trace)), HasSubstr("clock: the clock of rank"));
}

TEST(CheckTrace, ShowsTheFirstFiftyAndCountsTheRest) {
  std::vector<TraceViolation> violations(60, {"once", "it ran twice"});
  const std::string text = violations_text(violations);
  EXPECT_EQ(std::ranges::count(text, '\n'), 51);
  EXPECT_THAT(text, HasSubstr("and 10 more\n"));
}

}  // namespace
}  // namespace rpeg
