#include "runtime/inference.h"

#include "rpeg/base/error.h"
#include "runtime/batches.h"

namespace rpeg {
namespace {

std::vector<float>& result_of(SequenceData& entry, Op op) {
  switch (op) {
    case Op::kInferReference:
      return entry.ref_logprobs.emplace();
    case Op::kInferActor:
      return entry.actor_logprobs.emplace();
    case Op::kInferValue:
      return entry.values.emplace();
    case Op::kGenerate:
    case Op::kInferReward:
    case Op::kTrain:
    case Op::kTrainJoint:
      break;
  }
  throw Error(ErrorKind::kInternal, "not an inference vertex");
}

std::vector<double> response_numbers(RankContext& context,
                                     const Model<float>& model,
                                     const PackedSequences& packed,
                                     Op op) {
  if (op == Op::kInferValue) {
    std::vector<float> values;
    forward_values(model, packed.batch, context.activations, values);
    return gather_response(packed, values, Anchor::kPredecessor);
  }
  TokenScores<float> scores;
  const auto temperature = static_cast<float>(context.job.config.sampling.temperature);
  forward_scores(model, packed.batch, temperature, context.activations, scores);
  return gather_response(packed, scores.logprob, Anchor::kToken);
}

}  // namespace

void infer_sequences(RankContext& context, const Instruction& instruction, std::int64_t iteration) {
  IterationData& data = context.data.at(iteration);
  const Op op = context.vertex(instruction.vertex).op;
  const Model<float> model =
      model_for(context.job, context.models, instruction.vertex, iteration).model();
  const std::vector<std::int64_t> sequences = sequence_list(instruction.sequences);
  const std::int64_t parts = plan_of(context.job, instruction.vertex).micro_batches;
  for (const auto micro_batch : micro_batches(sequences, parts)) {
    const PackedSequences packed = pack_sequences(context, data, micro_batch);
    const std::vector<double> numbers = response_numbers(context, model, packed, op);
    for (std::size_t i = 0; i < micro_batch.size(); ++i) {
      const auto begin = numbers.begin() + packed.starts[i];
      const auto end = numbers.begin() + packed.starts[i + 1];
      std::vector<float>& out = result_of(data.sequences[micro_batch[i]], op);
      out.reserve(static_cast<std::size_t>(end - begin));
      for (auto number = begin; number != end; ++number) {
        out.push_back(static_cast<float>(*number));
      }
    }
  }
}

}  // namespace rpeg
