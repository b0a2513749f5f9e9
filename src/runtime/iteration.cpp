#include "runtime/iteration.h"

namespace rpeg {
namespace {

/// The given response of a sequence: of pair u, 2u is the chosen one and 2u + 1 the rejected one.
Rollout given_response(const RankContext& context, const IterationData& data, std::int64_t s) {
  const auto row = static_cast<std::size_t>(s / 2);
  const PreferencePair& pair = context.pairs.at(static_cast<std::size_t>(data.prompts.at(row)));
  Rollout rollout;
  rollout.tokens = s % 2 == 0 ? pair.chosen : pair.rejected;
  rollout.stopped = !context.stop_tokens.empty() && !rollout.tokens.empty() &&
                    rollout.tokens.back() == context.stop_tokens.front();
  return rollout;
}

void count_given(const RankContext& context,
                 const IterationData& data,
                 std::int64_t s,
                 Report& report) {
  const auto tokens = rollout_of(data, s).tokens.size();
  report[Sum::kPromptTokens] += static_cast<double>(context.prompt(data, s).tokens.size());
  report[Sum::kResponseTokens] += static_cast<double>(tokens);
}

void add_given_responses(RankContext& context, std::int64_t iteration, IterationData& data) {
  const auto rank = static_cast<std::size_t>(context.world.rank());
  for (const Instruction& instruction : context.job.ranks.at(rank).program) {
    const bool trains = instruction.kind == InstructionKind::kTrain;
    if (!trains && instruction.kind != InstructionKind::kInfer) {
      continue;
    }
    for (const std::int64_t s : sequence_list(instruction.sequences)) {
      SequenceData& entry = data.sequences[s];
      if (!entry.rollout.has_value()) {
        entry.rollout = given_response(context, data, s);
      }
      if (trains && context.groups_of(instruction.vertex).is_leader()) {
        count_given(context, data, s, context.reports[iteration]);
      }
    }
  }
}

}  // namespace

IterationData begin_iteration(RankContext& context, std::int64_t iteration) {
  const Job& job = context.job;
  IterationData data;
  data.prompts = iteration_prompts(static_cast<std::int64_t>(context.prompts.size()),
                                   job.inputs.workload.batch_size,
                                   iteration,
                                   job.config.data.shuffle,
                                   job.seed);
  if (!context.pairs.empty()) {
    add_given_responses(context, iteration, data);
  }
  return data;
}

}  // namespace rpeg
