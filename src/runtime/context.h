#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "rpeg/comm/comm.h"
#include "rpeg/data/dataset.h"
#include "rpeg/data/preferences.h"
#include "rpeg/hf/tokenizer.h"
#include "rpeg/job/job.h"
#include "rpeg/model/generate.h"
#include "rpeg/model/transformer.h"
#include "rpeg/runtime/run.h"
#include "runtime/clock.h"
#include "runtime/generation_state.h"
#include "runtime/groups.h"
#include "runtime/metrics.h"
#include "runtime/pairs.h"
#include "runtime/pipeline.h"
#include "runtime/replay.h"
#include "runtime/store.h"
#include "runtime/weights.h"

namespace rpeg {

/// Everything that one rank holds during a run. The handlers (generate.h, infer.h, train.h) are
/// free functions over it.
struct RankContext {
  const Job& job;
  Comm& world;
  const RunOptions& options;
  RunClock clock;
  Tokenizer tokenizer;
  std::vector<std::int32_t> stop_tokens;
  std::vector<Prompt> prompts;
  std::vector<Prompt> eval_prompts;
  RolloutTable replay;  ///< empty: generate
  RankModels models;
  RankGroups groups;
  std::map<std::int64_t, IterationData> data;  ///< iterations in flight
  std::map<std::int64_t, Report> reports;      ///< of iterations not yet reported
  PipelineBuffers activations;                 ///< scratch, shared by all models of the rank
  std::vector<PreferencePair> pairs{};         ///< of offline DPO, beside `prompts`
  std::map<std::int64_t, GenerationState> generations{};  ///< begun and not ended, by iteration

  const Vertex& vertex(VertexId id) const { return job.graph.vertices[index(id)]; }
  /// This rank's shard of the copy that a vertex uses.
  HeldModel& model(VertexId vertex) { return models.at(job.vertex_copy[index(vertex)]); }
  const HeldModel& model(VertexId vertex) const {
    return models.at(job.vertex_copy[index(vertex)]);
  }
  std::int64_t samples() const { return sequences_per_prompt(job.inputs); }
  const BlockGroups& groups_of(VertexId vertex) const {
    return groups.at(job.vertex_block[index(vertex)]);
  }
  /// What an instruction is about, on a leader (`sequences_of` of store.h).
  std::vector<std::int64_t> sequences(const Instruction& instruction,
                                      std::int64_t iteration) const {
    return sequences_of(data.at(iteration), instruction, vertex(instruction.vertex).stage);
  }
  /// The prompt of a sequence of an iteration.
  const Prompt& prompt(const IterationData& iteration, std::int64_t sequence) const {
    const auto row = static_cast<std::size_t>(sequence / samples());
    return prompts[static_cast<std::size_t>(iteration.prompts[row])];
  }
};

/// Throws kRuntime naming vertex and iteration unless `value` is finite; `what` reads "loss".
void check_finite(double value, const std::string& what, const std::string& where);

}  // namespace rpeg
