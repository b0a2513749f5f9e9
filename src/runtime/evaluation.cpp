#include "runtime/evaluation.h"

#include <algorithm>

#include "rpeg/base/error.h"
#include "rpeg/data/verifier.h"
#include "rpeg/plan/plan.h"
#include "runtime/generation.h"

namespace rpeg {
namespace {

/// The greedy rewards of the part of data.eval that replica `place.dp` has.
void evaluate_part(const RankContext& context,
                   VertexId vertex,
                   const BlockGroups& groups,
                   Report& report) {
  const Model<float> model = context.model(vertex).model();
  SamplingOptions options = sampling_options(context, 0);
  options.greedy = true;
  const int replicas = groups.parallelism.dp;
  const auto [first, last] = replica_sequences(
      static_cast<std::int64_t>(context.eval_prompts.size()), replicas, groups.place.dp);
  // As many sequences at a time as generation has on one replica: no more memory than that.
  const std::int64_t batch = (context.job.inputs.workload.sequences() + replicas - 1) / replicas;
  for (std::int64_t begin = first; begin < last; begin += batch) {
    const std::int64_t end = std::min(last, begin + batch);
    std::vector<GenerationRequest> requests;
    for (std::int64_t i = begin; i < end; ++i) {
      requests.push_back({context.eval_prompts[static_cast<std::size_t>(i)].tokens, i, 0});
    }
    const auto results = generate(model, requests, options);
    if (!groups.is_leader()) {
      continue;
    }
    std::vector<std::string> texts;
    std::vector<VerifierInput> inputs;
    texts.reserve(results.size());  // inputs look into them
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Prompt& prompt = context.eval_prompts[static_cast<std::size_t>(begin) + i];
      texts.push_back(response_text(context, results[i]));
      inputs.push_back({prompt.text, texts.back(), prompt.answer, results[i].stopped});
    }
    for (const double reward : verify_batch(context.job.config.verifier, inputs)) {
      report[Sum::kEvalReward] += reward;
      report[Sum::kEvalSequences] += 1.0;
    }
  }
}

}  // namespace

bool evaluation_due(const RankContext& context, std::int64_t iteration) {
  const std::int64_t every = context.job.config.data.eval_every;
  return !context.eval_prompts.empty() && every > 0 && iteration > 0 && iteration % every == 0;
}

void evaluate_into(RankContext& context, Report& report) {
  const auto& vertices = context.job.graph.vertices;
  const auto first = std::ranges::find(vertices, Op::kGenerate, &Vertex::op);
  check(first != vertices.end(), "evaluation without generation");
  const VertexId vertex{static_cast<std::int32_t>(first - vertices.begin())};
  const auto groups = context.groups.find(context.job.vertex_block[index(vertex)]);
  if (groups != context.groups.end()) {
    evaluate_part(context, vertex, groups->second, report);
  }
}

}  // namespace rpeg
