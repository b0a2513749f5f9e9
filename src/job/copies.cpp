#include <algorithm>

#include "job/layout.h"
#include "job/programs.h"
#include "rpeg/base/error.h"
#include "rpeg/job/job.h"

namespace rpeg {
namespace {

/// What a vertex needs on top of the trunk.
Head head_of_vertex(const Vertex& vertex) {
  switch (vertex.op) {
    case Op::kGenerate:
    case Op::kInferReference:
    case Op::kInferActor:
      return Head::kLanguageModel;
    case Op::kInferReward:
    case Op::kInferValue:
      return Head::kScalar;
    case Op::kTrain:
      return vertex.model == ModelRole::kCritic ? Head::kScalar : Head::kLanguageModel;
    case Op::kTrainJoint:
      return Head::kBoth;
  }
  throw Error(ErrorKind::kInternal, "job: unknown operation");
}

std::int64_t staleness_of(const Graph& graph, VertexId vertex) {
  for (const Edge& edge : graph.edges) {
    if (edge.to == vertex && edge.kind == EdgeKind::kWeights) {
      return edge.delta - 1;
    }
  }
  return 0;
}

bool is_frozen(const Job& job, const Vertex& vertex) {
  return std::none_of(
      job.graph.vertices.begin(), job.graph.vertices.end(), [&](const Vertex& other) {
        return is_training(other.op) && other.model == vertex.model;
      });
}

/// Whether the instances of two vertices that read one copy never overtake each other: both have
/// run in iteration k before either runs in iteration k + 1.
bool keep_step(const TaskPosition& a, const TaskPosition& b) {
  const auto next = [](const TaskPosition& position) {
    return TaskPosition{position.shift + 1, position.order};
  };
  return a < next(b) && b < next(a);
}

/// A vertex shares the copy of another that has the same model on the same ranks in the same split
/// and reads the same version. A reader shares the trained copy in place at τ = 0 only, and not at
/// all when the job asks for buffered publishing.
bool may_share(const WeightCopy& copy,
               const WeightCopy& wanted,
               const TaskPosition& position,
               const std::vector<TaskPosition>& positions,
               bool in_place) {
  if (copy.model != wanted.model || copy.block != wanted.block || copy.tau != wanted.tau ||
      (copy.is_trained && !in_place)) {
    return false;
  }
  return copy.is_frozen || copy.is_trained ||
         std::all_of(copy.vertices.begin(), copy.vertices.end(), [&](VertexId other) {
           return keep_step(positions[index(other)], position);
         });
}

}  // namespace

void build_copies(Job* job) {
  job->vertex_copy.assign(job->graph.vertices.size(), -1);
  const std::vector<TaskPosition> positions = task_positions(*job);
  const auto place = [&](std::size_t i, WeightCopy wanted) {
    const bool in_place = job->config.runtime.publish == Publish::kAuto;
    auto known = std::find_if(job->copies.begin(), job->copies.end(), [&](const WeightCopy& copy) {
      return may_share(copy, wanted, positions[i], positions, in_place);
    });
    if (known == job->copies.end()) {
      known = job->copies.insert(known, std::move(wanted));
    } else if (known->head != wanted.head) {
      known->head = Head::kBoth;
    }
    known->vertices.push_back(VertexId{static_cast<std::int32_t>(i)});
    job->vertex_copy[i] = static_cast<std::int32_t>(known - job->copies.begin());
  };
  // Training vertices first: readers may share their copies.
  for (const bool trains : {true, false}) {
    for (std::size_t i = 0; i < job->graph.vertices.size(); ++i) {
      const Vertex& vertex = job->graph.vertices[i];
      if (is_training(vertex.op) != trains) {
        continue;
      }
      // Weights go to the first stage or chunk; the others use what it got.
      const bool follows = vertex.stage > 1;
      if (follows) {
        const auto first = static_cast<std::int32_t>(i) - (vertex.stage - 1);
        job->vertex_copy[i] = job->vertex_copy[static_cast<std::size_t>(first)];
        job->copies[static_cast<std::size_t>(job->vertex_copy[i])].vertices.push_back(
            VertexId{static_cast<std::int32_t>(i)});
        continue;
      }
      WeightCopy wanted;
      wanted.model = vertex.model;
      wanted.head = head_of_vertex(vertex);
      wanted.block = job->vertex_block[i];
      wanted.tau = staleness_of(job->graph, VertexId{static_cast<std::int32_t>(i)});
      wanted.is_trained = trains;
      wanted.is_frozen = is_frozen(*job, vertex);
      place(i, std::move(wanted));
    }
  }
}

}  // namespace rpeg
