#include "job/program_state.h"

#include <fmt/format.h>

#include <utility>

namespace rpeg {
namespace {

using WorkTable = std::vector<std::vector<ReplicaWork>>;  // by vertex, replica

WorkTable find_works(const Job& job) {
  WorkTable works(job.graph.vertices.size());
  for (std::size_t v = 0; v < works.size(); ++v) {
    const VertexId vertex{static_cast<std::int32_t>(v)};
    for (int dp = 0; dp < block_of(job, vertex).parallelism.dp; ++dp) {
      works[v].push_back(replica_work(job, vertex, dp));
    }
  }
  return works;
}

/// Training takes its sequences out of the slots of every replica of generation that has any.
std::vector<ComputeInput> inputs_of(const Job& job,
                                    const WorkTable& works,
                                    std::size_t vertex,
                                    const ReplicaWork& work) {
  std::vector<ComputeInput> inputs;
  for (const Edge& edge : job.graph.edges) {
    if (index(edge.to) != vertex) {
      continue;
    }
    const std::int32_t stage = job.graph.vertices[index(edge.from)].stage;
    for (const Payload payload : edge_payloads(job, edge)) {
      if (stage == 0 || job.graph.vertices[vertex].stage > 0) {
        inputs.push_back({edge.from, payload, work});
        continue;
      }
      const VertexId generation = find_vertex(job.graph, fmt::format("g_pi.{}", stage));
      for (const ReplicaWork& generated : works[index(generation)]) {
        ReplicaWork part{intersect(generated.sequences, work.sequences), generated.slots};
        if (!part.sequences.empty() && !part.slots.empty()) {
          inputs.push_back({edge.from, payload, std::move(part)});
        }
      }
    }
  }
  return inputs;
}

}  // namespace

std::vector<std::vector<ComputeGroup>> build_groups(const Job& job) {
  std::vector<std::vector<ComputeGroup>> groups(job.graph.vertices.size());
  for (std::size_t v = 0; v < groups.size(); ++v) {
    const Block& block = block_of(job, VertexId{static_cast<std::int32_t>(v)});
    if (is_training(job.graph.vertices[v].op)) {
      groups[v].emplace_back().members = block.ranks;
      continue;
    }
    for (int dp = 0; dp < block.parallelism.dp; ++dp) {
      groups[v].emplace_back().members = replica_ranks(block, dp);
    }
  }
  return groups;
}

std::vector<std::vector<std::vector<ComputeInput>>> find_inputs(const Job& job) {
  const WorkTable works = find_works(job);
  std::vector<std::vector<std::vector<ComputeInput>>> inputs(works.size());
  for (std::size_t v = 0; v < works.size(); ++v) {
    for (const ReplicaWork& work : works[v]) {
      inputs[v].push_back(inputs_of(job, works, v, work));
    }
  }
  return inputs;
}

std::vector<RankState> build_rank_states(const Job& job, std::int64_t iterations) {
  std::vector<RankState> ranks;
  for (const RankSpec& rank : job.ranks) {
    RankState state;
    state.steps = unroll_program(job, rank, iterations);
    state.versions.assign(job.copies.size(), 0);
    state.arrived.assign(job.transfers.size(), 0);
    state.expected.assign(job.transfers.size(), 0);
    state.computed.assign(job.graph.vertices.size(), -1);
    ranks.push_back(std::move(state));
  }
  for (std::size_t t = 0; t < job.transfers.size(); ++t) {
    for (const WeightMessage& message : job.transfers[t].messages) {
      ++ranks[static_cast<std::size_t>(message.to)].expected[t];
    }
  }
  return ranks;
}

}  // namespace rpeg
