#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "job/held_data.h"
#include "job/program_steps.h"

// What the symbolic execution of all rank programs (program_machine.h) keeps.

namespace rpeg {

/// The ranks that compute a vertex, or a replica of it, together.
struct ComputeGroup {
  std::vector<int> members;
  std::int64_t iteration = 0;
  std::vector<int> inside;  ///< members that wait for the others
};

using DataKey = std::tuple<std::int64_t, VertexId, Payload>;  // iteration, producer, what

struct RankState {
  std::vector<ProgramStep> steps;
  std::size_t at = 0;
  bool is_inside = false;  ///< of the computation at `at`, waiting for the others
  std::map<DataKey, HeldData> held;
  std::vector<std::int64_t> versions;  ///< by copy; kBeingWritten while messages arrive
  std::vector<std::size_t> arrived;    ///< by transfer: messages of the version that arrives
  std::vector<std::size_t> expected;   ///< by transfer: messages that make a version
  std::vector<std::int64_t> computed;  ///< by vertex: the last iteration, -1 before
};

inline constexpr std::int64_t kBeingWritten = -1;

/// What a replica needs before it computes.
struct ComputeInput {
  VertexId producer{};
  Payload payload = Payload::kRollout;
  ReplicaWork work;
};

/// By vertex: one group of training, else one of each replica.
std::vector<std::vector<ComputeGroup>> build_groups(const Job& job);
/// By vertex and replica.
std::vector<std::vector<std::vector<ComputeInput>>> find_inputs(const Job& job);
/// By rank, before the first step.
std::vector<RankState> build_rank_states(const Job& job, std::int64_t iterations);

}  // namespace rpeg
