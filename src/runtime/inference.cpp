#include "runtime/inference.h"

#include <algorithm>
#include <limits>

#include "rpeg/base/error.h"
#include "rpeg/model/stage.h"
#include "runtime/batches.h"
#include "runtime/message.h"
#include "runtime/pairs.h"
#include "runtime/share.h"

namespace rpeg {
namespace {

constexpr int kResultTag = 1;  ///< from the last stage to the leader, in the replica's group

/// What an inference vertex finds out about one sequence: one number a response token, or of i_R a
/// single one.
using Numbers = std::vector<float>;

std::size_t numbers_of_sequence(Op op, const IterationData& data, std::int64_t s) {
  return op == Op::kInferReward ? 1 : rollout_of(data, s).tokens.size();
}

void store_result(SequenceData& entry, Op op, Numbers numbers) {
  switch (op) {
    case Op::kInferReference:
      entry.ref_logprobs = std::move(numbers);
      return;
    case Op::kInferActor:
      entry.actor_logprobs = std::move(numbers);
      return;
    case Op::kInferValue:
      entry.values = std::move(numbers);
      return;
    case Op::kInferReward:
      entry.score = static_cast<double>(numbers.at(0));
      return;
    case Op::kGenerate:
    case Op::kTrain:
    case Op::kTrainJoint:
      break;
  }
  throw Error(ErrorKind::kInternal, "not an inference vertex");
}

/// Log-probability of each response token.
std::vector<double> response_logprobs(RankContext& context,
                                      const Model<float>& model,
                                      const PackedSequences& packed,
                                      std::span<const float> hidden) {
  TokenScores<float> scores;
  const auto temperature = static_cast<float>(context.job.config.sampling.temperature);
  head_scores(model, packed.batch, hidden, temperature, context.activations.head_scratch, scores);
  return gather_response(packed, scores.logprob, Anchor::kToken);
}

/// The numbers of a micro-batch, by sequence.
std::vector<Numbers> result_of(RankContext& context,
                               const Model<float>& model,
                               const PackedSequences& packed,
                               Op op,
                               std::span<const float> hidden) {
  std::vector<Numbers> result(packed.first.size());
  std::vector<float> values;
  std::vector<double> numbers;
  if (op == Op::kInferReward || op == Op::kInferValue) {
    head_values(model, hidden, values);
  }
  if (op == Op::kInferReward) {
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[i] = {values[static_cast<std::size_t>(packed.batch.starts[i + 1] - 1)]};
    }
    return result;
  }
  numbers = op == Op::kInferValue ? gather_response(packed, values, Anchor::kPredecessor)
                                  : response_logprobs(context, model, packed, hidden);
  for (std::size_t i = 0; i < result.size(); ++i) {
    for (std::int64_t r = packed.starts[i]; r < packed.starts[i + 1]; ++r) {
      result[i].push_back(static_cast<float>(numbers[static_cast<std::size_t>(r)]));
    }
  }
  return result;
}

/// Online DPO's reference scores only the pairs that will be trained. The other samples get nan, so
/// that messages hold every sequence that they were compiled for.
std::vector<std::int64_t> trained_sequences(const WorkloadConfig& inputs,
                                            std::span<const std::int64_t> sequences,
                                            IterationData& data) {
  std::vector<std::int64_t> trained;
  for (const SequencePair& pair : preference_pairs(inputs, data, sequences)) {
    trained.push_back(pair.chosen);
    trained.push_back(pair.rejected);
  }
  std::sort(trained.begin(), trained.end());
  for (const std::int64_t s : sequences) {
    if (!std::binary_search(trained.begin(), trained.end(), s)) {
      const std::size_t tokens = rollout_of(data, s).tokens.size();
      data.sequences[s].ref_logprobs.emplace(tokens, std::numeric_limits<float>::quiet_NaN());
    }
  }
  return trained;
}

/// The sequences that the vertex reads, on the leader.
std::vector<std::int64_t> read_sequences(const RankContext& context,
                                         const Instruction& instruction,
                                         IterationData& data) {
  const std::vector<std::int64_t> sequences =
      sequences_of(data, instruction, context.vertex(instruction.vertex).stage);
  const bool is_dpo = context.job.inputs.policy.algorithm == Algorithm::kDpo;
  return is_dpo && context.vertex(instruction.vertex).op == Op::kInferReference
             ? trained_sequences(context.job.inputs, sequences, data)
             : sequences;
}

/// One message from rank (last stage, tp 0) to the leader, in the order of `sequences`.
void deliver(const BlockGroups& groups,
             Op op,
             std::span<const std::int64_t> sequences,
             std::map<std::int64_t, Numbers>& results,
             IterationData& data) {
  const int last = (groups.parallelism.pp - 1) * groups.parallelism.tp;
  if (groups.replica->rank() == last && last != 0) {
    Bytes message;
    for (const std::int64_t s : sequences) {
      append_bytes(message, std::span<const float>(results.at(s)));
    }
    groups.replica->send(0, kResultTag, std::move(message));
  }
  if (!groups.is_leader()) {
    return;
  }
  if (last != 0) {
    const Bytes message = groups.replica->receive(last, kResultTag);
    MessageReader reader(message);
    for (const std::int64_t s : sequences) {
      results[s] = reader.take_vector<float>(numbers_of_sequence(op, data, s));
    }
    check(reader.remaining() == 0, "results longer than their sequences");
  }
  for (const std::int64_t s : sequences) {
    store_result(data.sequences[s], op, std::move(results.at(s)));
  }
}

void count_rewards(const IterationData& data,
                   std::span<const std::int64_t> sequences,
                   Report& report) {
  for (const std::int64_t s : sequences) {
    const double reward = score_of(data, s);
    report[Sum::kReward] += reward;
    report[Sum::kRewardSquared] += reward * reward;
  }
}

}  // namespace

void infer_sequences(RankContext& context, const Instruction& instruction, std::int64_t iteration) {
  const VertexId vertex = instruction.vertex;
  const BlockGroups& groups = context.groups_of(vertex);
  const Op op = context.vertex(vertex).op;
  IterationData& data = context.data.at(iteration);
  std::vector<std::int64_t> sequences;
  if (groups.is_leader()) {
    sequences = read_sequences(context, instruction, data);
  }
  constexpr std::array<Payload, 1> kNeeded = {Payload::kRollout};
  sequences = share_sequences(context, vertex, iteration, sequences, kNeeded);
  if (sequences.empty()) {  // a chunk without slots
    return;
  }
  const auto pieces =
      micro_batches(context, data, sequences, plan_of(context.job, vertex).micro_batches);
  const std::vector<PackedSequences> packed = pack_micro_batches(context, data, pieces);
  const Model<float> model = model_for(context.job, context.models, vertex, iteration).model();
  std::map<std::int64_t, Numbers> results;
  run_forward(model,
              batches_of(packed),
              context.activations,
              [&](std::size_t i, std::span<const float> hidden) {
                auto numbers = result_of(context, model, packed[i], op, hidden);
                for (std::size_t k = 0; k < numbers.size(); ++k) {
                  results[pieces[i][k]] = std::move(numbers[k]);
                }
              });
  deliver(groups, op, sequences, results, data);
  if (op == Op::kInferReward && groups.is_leader()) {
    count_rewards(data, sequences, context.reports[iteration]);
  }
}

}  // namespace rpeg
