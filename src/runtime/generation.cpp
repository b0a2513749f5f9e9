#include "runtime/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "rpeg/base/error.h"
#include "rpeg/data/verifier.h"
#include "runtime/evaluation.h"

namespace rpeg {
namespace {

/// Runs the model or the verifier: they know what is wrong (logits that are not finite, a command
/// that crashed), not which vertex they run for.
template <typename Body>
auto run_named(const RankContext& context,
               const Instruction& instruction,
               std::int64_t iteration,
               const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    const std::string& vertex = context.vertex(instruction.vertex).name;
    throw Error(error.kind(),
                fmt::format("{}, iteration {}: {}", vertex, iteration, error.message()),
                error.where());
  }
}

bool has_verifier(const RankContext& context) {
  return context.job.config.verifier.kind != VerifierKind::kNone;
}

/// Throws unless a recorded rollout fits the job, for a file may come from anywhere.
void check_record(const RankContext& context, const RolloutRecord& record) {
  const auto fail = [&](const std::string& complaint) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--replay: iteration {}, prompt {}, sample {} {}",
                            record.iteration,
                            record.prompt,
                            record.sample,
                            complaint));
  };
  const auto& prompts = context.data.at(record.iteration).prompts;
  const std::int64_t drawn = prompts[static_cast<std::size_t>(record.prompt)];
  if (record.dataset_index != drawn) {
    fail(
        fmt::format("answers prompt {} of the data, but this run draws prompt {}: replay with the "
                    "seed, the data and the batch of the recording",
                    record.dataset_index,
                    drawn));
  }
  const std::vector<std::int32_t>& tokens = record.rollout.tokens;
  const std::int64_t longest = context.job.inputs.workload.generation_length;
  if (static_cast<std::int64_t>(tokens.size()) > longest) {
    fail(fmt::format(
        "has {} tokens, more than the generation_length of {}", tokens.size(), longest));
  }
  const std::int64_t vocabulary = context.job.inputs.model(ModelRole::kActor).vocab_size;
  const auto [lowest, highest] = std::minmax_element(tokens.begin(), tokens.end());
  if (*lowest < 0 || *highest >= vocabulary) {
    fail(fmt::format("has a token outside the model's vocabulary of {}", vocabulary));
  }
}

/// The recorded rollout in place of a generated one.
const RolloutRecord& replayed(const RankContext& context,
                              std::int64_t iteration,
                              std::int64_t sequence) {
  const std::int64_t prompt = sequence / context.samples();
  const std::int64_t sample = sequence % context.samples();
  const auto found = context.replay.find({iteration, prompt, sample});
  if (found == context.replay.end()) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--replay has no rollout of iteration {}, prompt {}, sample {}: run "
                            "fewer iterations, or record with the same batch",
                            iteration,
                            prompt,
                            sample));
  }
  check_record(context, found->second);
  return found->second;
}

void count(const RankContext& context,
           Report& report,
           const RolloutRecord& record,
           const Prompt& prompt) {
  report[Sum::kSequences] += 1.0;
  if (has_verifier(context)) {  // a reward model counts its rewards itself
    report[Sum::kReward] += record.reward;
    report[Sum::kRewardSquared] += record.reward * record.reward;
  }
  report[Sum::kPromptTokens] += static_cast<double>(prompt.tokens.size());
  report[Sum::kResponseTokens] += static_cast<double>(record.rollout.tokens.size());
  report[Sum::kStopped] += record.rollout.stopped ? 1.0 : 0.0;
}

/// Begins the generation of an iteration on this rank.
void start_generation(RankContext& context,
                      const Instruction& instruction,
                      std::int64_t iteration,
                      GenerationState& state) {
  state.sequences = sequence_list(instruction.sequences);
  if (!context.replay.empty()) {
    std::vector<std::pair<std::size_t, std::int64_t>> by_length;
    for (const std::int64_t s : state.sequences) {
      by_length.emplace_back(replayed(context, iteration, s).rollout.tokens.size(), s);
    }
    std::ranges::sort(by_length);
    for (const auto& [length, s] : by_length) {
      state.ending_order.push_back(s);
    }
    return;
  }
  const IterationData& data = context.data.at(iteration);
  std::vector<GenerationRequest> requests;
  for (const std::int64_t s : state.sequences) {
    requests.push_back(
        {context.prompt(data, s).tokens, s / context.samples(), s % context.samples()});
  }
  const HeldModel& actor = model_for(context.job, context.models, instruction.vertex, iteration);
  const SessionOptions options{
      .micro_batches = plan_of(context.job, instruction.vertex).micro_batches, .max_live = 0};
  run_named(context, instruction, iteration, [&] {
    state.session.emplace(
        actor.model(), std::move(requests), sampling_options(context, iteration), options);
  });
}

/// The next `count` sequences that end, sampled.
std::vector<RolloutRecord> sample_rollouts(RankContext& context,
                                           const Instruction& instruction,
                                           std::int64_t iteration,
                                           GenerationState& state,
                                           std::vector<std::int64_t>& sequences) {
  // The weights must still be those that the session began with.
  model_for(context.job, context.models, instruction.vertex, iteration);
  std::vector<FinishedSequence> finished = run_named(
      context, instruction, iteration, [&] { return state.session->advance(state.ended); });
  std::vector<RolloutRecord> records;
  for (FinishedSequence& one : finished) {
    sequences.push_back(state.sequences.at(one.request));
    RolloutRecord record;
    if (context.groups_of(instruction.vertex).is_leader()) {
      record.text = response_text(context, one.result);
    }
    record.rollout = {
        std::move(one.result.tokens), std::move(one.result.logprobs), one.result.stopped};
    records.push_back(std::move(record));
  }
  return records;
}

/// Rewards of new rollouts by the verifier; returns the seconds it took.
double score(const RankContext& context,
             const IterationData& data,
             std::span<const std::int64_t> sequences,
             std::span<RolloutRecord> records) {
  if (!has_verifier(context)) {
    for (RolloutRecord& record : records) {
      record.reward = std::numeric_limits<double>::quiet_NaN();
    }
    return 0.0;
  }
  const double start_s = context.clock.now_s();
  std::vector<VerifierInput> inputs;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Prompt& prompt = context.prompt(data, sequences[i]);
    inputs.push_back({prompt.text, records[i].text, prompt.answer, records[i].rollout.stopped});
  }
  const std::vector<double> rewards = verify_batch(context.job.config.verifier, inputs);
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    records[i].reward = rewards[i];
  }
  return context.clock.now_s() - start_s;
}

/// The leader keeps what ended: data, slots, counts, lines of the rollouts file.
void store_rollouts(RankContext& context,
                    const Instruction& instruction,
                    std::int64_t iteration,
                    std::span<const std::int64_t> sequences,
                    std::span<RolloutRecord> records) {
  IterationData& data = context.data.at(iteration);
  Report& report = context.reports[iteration];
  const std::int32_t stage = context.vertex(instruction.vertex).stage;
  const std::vector<std::int64_t> slots = sequence_list(instruction.slots);
  const bool writes = !context.job.config.runtime.rollouts.empty() && context.replay.empty();
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const std::int64_t s = sequences[i];
    RolloutRecord& record = records[i];
    record.iteration = iteration;
    record.prompt = s / context.samples();
    record.sample = s % context.samples();
    record.dataset_index = data.prompts[static_cast<std::size_t>(record.prompt)];
    record.version = context.model(instruction.vertex).version;
    count(context, report, record, context.prompt(data, s));
    if (writes) {
      report.rollouts += rollout_line(record);
    }
    if (!slots.empty()) {
      data.slots[{stage, slots.at(i)}] = s;
    }
    SequenceData& entry = data.sequences[s];
    if (has_verifier(context)) {
      entry.score = record.reward;
    }
    entry.rollout = std::move(record.rollout);
  }
}

/// Sequences that end in an instruction: those of its slots; all when generation is not cut.
std::int64_t ending_count(const RankContext& context, const Instruction& instruction) {
  return context.vertex(instruction.vertex).stage > 0 ? sequence_count(instruction.slots)
                                                      : sequence_count(instruction.sequences);
}

}  // namespace

SamplingOptions sampling_options(const RankContext& context, std::int64_t iteration) {
  const SamplingConfig& config = context.job.config.sampling;
  SamplingOptions options;
  options.temperature = config.temperature;
  options.top_p = config.top_p;
  options.top_k = config.top_k;
  options.max_new_tokens = context.job.inputs.workload.generation_length;
  options.stop_tokens = context.stop_tokens;
  options.seed = context.job.seed;
  options.iteration = iteration;
  return options;
}

std::string response_text(const RankContext& context, const GenerationResult& result) {
  std::span<const std::int32_t> tokens(result.tokens);
  return context.tokenizer.decode(result.stopped ? tokens.first(tokens.size() - 1) : tokens);
}

Generated generate_sequences(RankContext& context,
                             const Instruction& instruction,
                             std::int64_t iteration) {
  Generated result;
  const bool is_leader = context.groups_of(instruction.vertex).is_leader();
  if (context.vertex(instruction.vertex).stage <= 1) {
    const double start_s = context.clock.now_s();
    if (evaluation_due(context, iteration)) {
      evaluate_into(context, context.reports[iteration]);
      result.evaluation_s = context.clock.now_s() - start_s;
    }
    start_generation(context, instruction, iteration, context.generations[iteration]);
  }
  const std::int64_t count = ending_count(context, instruction);
  if (count == 0) {
    return result;
  }
  GenerationState& state = context.generations.at(iteration);
  std::vector<std::int64_t> sequences;
  std::vector<RolloutRecord> records;
  const std::int64_t ended_before = state.ended;
  state.ended += count;
  if (state.session.has_value()) {
    records = sample_rollouts(context, instruction, iteration, state, sequences);
  } else {
    // The ranks of a replica are together in it, as when they generate.
    context.groups_of(instruction.vertex).replica->barrier();
    const auto begin = state.ending_order.begin() + ended_before;
    sequences.assign(begin, begin + count);
    for (const std::int64_t s : sequences) {
      records.push_back(replayed(context, iteration, s));
    }
  }
  check(std::ssize(sequences) == count, "a stage of generation ended with another count");
  if (is_leader) {
    if (state.session.has_value()) {
      result.verifier_s = run_named(context, instruction, iteration, [&] {
        return score(context, context.data.at(iteration), sequences, records);
      });
    }
    store_rollouts(context, instruction, iteration, sequences, records);
    result.sequences = std::move(sequences);
  }
  if (state.ended == std::ssize(state.sequences)) {
    context.generations.erase(iteration);
  }
  return result;
}

}  // namespace rpeg
