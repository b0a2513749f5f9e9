#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "rpeg/sim/steady_solver.h"

// The deterministic list schedule of docs/search.md, until its state repeats.

namespace rpeg::sim {

inline std::uint64_t bit(std::size_t task) { return std::uint64_t{1} << task; }
inline std::size_t lowest(std::uint64_t set) {
  return static_cast<std::size_t>(std::countr_zero(set));
}

/// An edge at its receiver, and at its sender.
struct Input {
  std::size_t from = 0;
  std::int64_t delta = 0;
  std::size_t token = 0;
};
struct Output {
  std::size_t to = 0;
  std::size_t token = 0;
};

/// One run of the list scheduler. Instances of a task run one after the other. Every edge carries
/// tokens, one for each end of its sender that its receiver has not used up; a task whose edges all
/// carry one has its inputs.
struct ListScheduler {
  void prepare(const CompactTasks& tasks);
  void read_edges();
  void find_remaining_paths();
  void start(std::size_t task);
  void start_ready_tasks();
  void advance();
  void open_next_iteration();
  bool state_repeats();
  void run(std::int64_t k_eval);

  const CompactTasks* tasks = nullptr;
  std::size_t count = 0;
  std::array<std::size_t, kMaxTasks + 1> first_input{};
  std::array<std::size_t, kMaxTasks + 1> first_output{};
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<std::int64_t> tokens;                  ///< per edge
  std::array<std::int32_t, kMaxTasks> empty{};       ///< per task: inputs without a token
  std::array<std::int64_t, kMaxTasks> path_ns{};     ///< longest remaining path of the iteration
  std::array<std::int64_t, kMaxTasks> started{};     ///< instances
  std::array<std::int64_t, kMaxTasks> ended{};       ///< instances
  std::array<std::int64_t, kMaxTasks> end_ns{};      ///< of the running instance
  std::array<std::int64_t, kMaxTasks> start_ns{};    ///< of the latest instance
  std::array<std::uint64_t, kMaxTasks> ends_then{};  ///< tasks that ended when it started
  std::uint64_t ready = 0;                           ///< tasks that have their inputs
  std::uint64_t running = 0;
  std::uint64_t behind = 0;  ///< tasks that have not ended the oldest open iteration
  std::uint64_t beyond = 0;  ///< tasks that have started every iteration that may be open
  std::uint64_t ended_now = 0;
  std::int64_t look_ahead = 3;  ///< iterations that may be open: keeps the state finite
  std::int64_t done = 0;        ///< iterations that have ended
  std::int64_t now_ns = 0;

  std::vector<ScheduledTask> timeline;
  std::vector<std::uint64_t> states;      ///< count words for each look at the state
  std::vector<std::size_t> state_starts;  ///< length of the timeline at each look
  std::vector<std::int64_t> state_time_ns;
  std::size_t repeated = 0;     ///< the look that equals the last one
  std::size_t period_end = 0;   ///< length of the timeline at the last look
  std::int64_t iterations = 0;  ///< of the repeating sequence; 0: none was found
};

}  // namespace rpeg::sim
