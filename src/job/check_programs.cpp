#include <algorithm>
#include <limits>

#include "job/layout.h"
#include "job/program_machine.h"
#include "job/static_check.h"
#include "rpeg/base/error.h"
#include "rpeg/job/compile.h"

namespace rpeg {
namespace {

constexpr std::int64_t kNoPath = std::numeric_limits<std::int64_t>::max() / 4;

/// Element (u, v): the least total iteration distance of a path from u to v.
std::vector<std::vector<std::int64_t>> least_distances(const Graph& graph) {
  const std::size_t count = graph.vertices.size();
  std::vector<std::vector<std::int64_t>> least(count, std::vector<std::int64_t>(count, kNoPath));
  for (std::size_t v = 0; v < count; ++v) {
    least[v][v] = 0;
  }
  for (const Edge& edge : graph.edges) {
    std::int64_t& entry = least[index(edge.from)][index(edge.to)];
    entry = std::min(entry, edge.delta);
  }
  for (std::size_t via = 0; via < count; ++via) {
    for (std::size_t u = 0; u < count; ++u) {
      for (std::size_t v = 0; v < count; ++v) {
        least[u][v] = std::min(least[u][v], least[u][via] + least[via][v]);
      }
    }
  }
  return least;
}

/// Messages of one tag between two ranks that may be on their way at once: along an edge u -> v of
/// distance δ, v of iteration k receives what u of iteration k − δ sent, and a path from v back to
/// u of distance D keeps u from starting iteration k + D before: D + δ messages, those of τ + 1
/// iterations between generation and training.
std::vector<std::int64_t> most_in_flight(const Job& job) {
  const auto least = least_distances(job.graph);
  const auto most = [&](VertexId from, VertexId to, std::int64_t delta) {
    const std::int64_t back = least[index(to)][index(from)];
    check(back < kNoPath, "job: nothing keeps a vertex from running ahead of its consumer");
    return back + delta;
  };
  std::vector<std::int64_t> bounds(
      static_cast<std::size_t>(weights_tag(job.graph, job.transfers.size())), 1);
  for (std::size_t e = 0; e < job.graph.edges.size(); ++e) {
    const Edge& edge = job.graph.edges[e];
    if (keeps_order(edge)) {
      bounds[static_cast<std::size_t>(data_tag(e, Payload::kRollout))] =
          most(edge.from, edge.to, edge.delta);
    }
    for (const Payload payload : edge_payloads(job, edge)) {
      bounds[static_cast<std::size_t>(data_tag(e, payload))] = most(edge.from, edge.to, edge.delta);
    }
  }
  for (std::size_t t = 0; t < job.transfers.size(); ++t) {
    const WeightTransfer& transfer = job.transfers[t];
    bounds[static_cast<std::size_t>(weights_tag(job.graph, t))] =
        most(transfer.producer, transfer.consumer, transfer.delta);
  }
  return bounds;
}

/// Enough for every rank to be in all its tasks at once, with as many versions as there may be.
std::int64_t enough_iterations(const Job& job) {
  std::int64_t shift = 0;
  std::int64_t delta = 0;
  for (const RankSpec& rank : job.ranks) {
    for (const Instruction& instruction : rank.program) {
      shift = std::max(shift, instruction.shift);
    }
  }
  for (const WeightTransfer& transfer : job.transfers) {
    delta = std::max(delta, transfer.delta);
  }
  return shift + delta + 2;
}

}  // namespace

void check_programs(const Job& job, int iterations) {
  check_static(job);
  execute_symbolically(
      job, std::max<std::int64_t>(iterations, enough_iterations(job)), most_in_flight(job));
}

}  // namespace rpeg
