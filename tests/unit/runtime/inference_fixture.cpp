#include "inference_fixture.h"

#include <mutex>

#include "recorded_batch.h"
#include "runtime/inference.h"

namespace rpeg {
namespace {

/// Weights of a scalar head start at zero: values would be zero under any layout.
void move_scalar_heads(RankModels& models) {
  for (auto& [copy, model] : models) {
    for (const ParameterTensor& tensor : model.layout.tensors) {
      for (std::int64_t i = 0; tensor.name == "score.weight" && i < tensor.count; ++i) {
        model.weights[static_cast<std::size_t>(tensor.offset + i)] =
            static_cast<float>(i % 5) - 1.5F;
      }
    }
  }
}

std::vector<float> found(const SequenceData& entry, Op op) {
  switch (op) {
    case Op::kInferReward:
      return {static_cast<float>(entry.score.value())};
    case Op::kInferValue:
      return entry.values.value();
    case Op::kInferReference:
      return entry.ref_logprobs.value();
    default:
      return entry.actor_logprobs.value();
  }
}

void infer_rank(const Job& job, Comm& world, std::mutex& mutex, InferenceOutcome& outcome) {
  const RunOptions options;
  const auto context = rank_context(job, world, options);
  move_scalar_heads(context->models);
  for (const Instruction& instruction : job.ranks[static_cast<std::size_t>(world.rank())].program) {
    if (instruction.kind != InstructionKind::kInfer) {
      continue;
    }
    IterationData& data = recorded_iteration(*context, 0);
    data.sequences.clear();
    const bool leads = context->groups_of(instruction.vertex).is_leader();
    const Vertex& vertex = context->vertex(instruction.vertex);
    if (leads) {
      for (const std::int64_t s : sequence_list(instruction.sequences)) {
        SequenceData recorded = recorded_sequence(job.inputs, 0, s);
        data.sequences[s].rollout = recorded.rollout;
        if (vertex.op == Op::kInferReference) {
          data.sequences[s].score = recorded.score;  // online DPO chooses by it
        }
      }
    }
    infer_sequences(*context, instruction, 0);
    const std::lock_guard lock(mutex);
    for (const auto& [s, entry] : data.sequences) {
      if (leads && (vertex.op != Op::kInferReference || entry.ref_logprobs.has_value())) {
        outcome[vertex.name][s] = found(entry, vertex.op);
      }
    }
  }
}

}  // namespace

InferenceOutcome infer_on_threads(const Job& job) {
  std::mutex mutex;
  InferenceOutcome outcome;
  on_threads(job, [&](Comm& world) { infer_rank(job, world, mutex, outcome); });
  return outcome;
}

std::vector<float> infer_alone(const Job& job, const std::string& vertex, std::int64_t sequence) {
  const VertexId id = find_vertex(job.graph, vertex);
  RankModels models = build_rank_models(job, 0);
  move_scalar_heads(models);
  const Model<float> model = models.at(job.vertex_copy[index(id)]).model();
  const std::int64_t samples = sequences_per_prompt(job.inputs);
  std::vector<std::int32_t> tokens =
      recorded_prompts()[static_cast<std::size_t>(sequence / samples)].tokens;
  const std::size_t prompt = tokens.size();
  const Rollout rollout = recorded_sequence(job.inputs, 0, sequence).rollout.value();
  tokens.insert(tokens.end(), rollout.tokens.begin(), rollout.tokens.end());
  PackedBatch batch;
  append_sequence(batch, tokens);
  Activations<float> activations;
  const Op op = job.graph.vertices[index(id)].op;
  if (op == Op::kInferReward || op == Op::kInferValue) {
    std::vector<float> values;
    forward_values(model, batch, activations, values);
    return op == Op::kInferReward
               ? std::vector<float>{values.back()}
               : std::vector<float>(values.begin() + static_cast<std::ptrdiff_t>(prompt) - 1,
                                    values.end() - 1);
  }
  TokenScores<float> scores;
  const auto temperature = static_cast<float>(job.config.sampling.temperature);
  forward_scores(model, batch, temperature, activations, scores);
  return {scores.logprob.begin() + static_cast<std::ptrdiff_t>(prompt), scores.logprob.end()};
}

}  // namespace rpeg
