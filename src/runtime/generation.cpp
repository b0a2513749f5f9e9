#include "runtime/generation.h"

#include <fmt/format.h>

#include <algorithm>

#include "rpeg/base/error.h"
#include "rpeg/data/verifier.h"
#include "rpeg/plan/plan.h"

namespace rpeg {
namespace {

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

std::vector<GenerationResult> run_model(RankContext& context,
                                        const Instruction& instruction,
                                        std::int64_t iteration,
                                        std::span<const std::int64_t> sequences) {
  const IterationData& data = context.data.at(iteration);
  std::vector<GenerationRequest> requests;
  for (const std::int64_t s : sequences) {
    requests.push_back(
        {context.prompt(data, s).tokens, s / context.samples(), s % context.samples()});
  }
  const HeldModel& actor = model_for(context.job, context.models, instruction.vertex, iteration);
  try {
    return generate(actor.model(), requests, sampling_options(context, iteration));
  } catch (const Error& error) {
    // The model knows what is wrong (logits that are not finite), not which vertex it runs for.
    const std::string& vertex = context.vertex(instruction.vertex).name;
    throw Error(error.kind(),
                fmt::format("{}, iteration {}: {}", vertex, iteration, error.message()),
                error.where());
  }
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
RolloutRecord replayed(const RankContext& context, std::int64_t iteration, std::int64_t sequence) {
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

/// Text of a response, without the stop token that ended it.
std::string response_text(const RankContext& context, const GenerationResult& result) {
  std::span<const std::int32_t> tokens(result.tokens);
  return context.tokenizer.decode(result.stopped ? tokens.first(tokens.size() - 1) : tokens);
}

double reward_of(const RankContext& context,
                 const Prompt& prompt,
                 const std::string& response,
                 bool stopped) {
  return verify(context.job.config.verifier, {prompt.text, response, prompt.answer, stopped});
}

void count(Report& report, const RolloutRecord& record, const Prompt& prompt) {
  report[Sum::kSequences] += 1.0;
  report[Sum::kReward] += record.reward;
  report[Sum::kRewardSquared] += record.reward * record.reward;
  report[Sum::kPromptTokens] += static_cast<double>(prompt.tokens.size());
  report[Sum::kResponseTokens] += static_cast<double>(record.rollout.tokens.size());
  report[Sum::kStopped] += record.rollout.stopped ? 1.0 : 0.0;
}

std::vector<RolloutRecord> replay_sequences(RankContext& context,
                                            std::int64_t iteration,
                                            std::span<const std::int64_t> sequences) {
  std::vector<RolloutRecord> records;
  for (const std::int64_t s : sequences) {
    records.push_back(replayed(context, iteration, s));
  }
  return records;
}

std::vector<RolloutRecord> sample_sequences(RankContext& context,
                                            const Instruction& instruction,
                                            std::int64_t iteration,
                                            std::span<const std::int64_t> sequences) {
  std::vector<GenerationResult> results = run_model(context, instruction, iteration, sequences);
  std::vector<RolloutRecord> records;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Prompt& prompt = context.prompt(context.data.at(iteration), sequences[i]);
    RolloutRecord record;
    record.text = response_text(context, results[i]);
    record.reward = reward_of(context, prompt, record.text, results[i].stopped);
    record.rollout = {
        std::move(results[i].tokens), std::move(results[i].logprobs), results[i].stopped};
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace

void generate_sequences(RankContext& context,
                        const Instruction& instruction,
                        std::int64_t iteration) {
  IterationData& data = context.data.at(iteration);
  Report& report = context.reports[iteration];
  const std::vector<std::int64_t> sequences = sequence_list(instruction.sequences);
  std::vector<RolloutRecord> records =
      context.replay.empty() ? sample_sequences(context, instruction, iteration, sequences)
                             : replay_sequences(context, iteration, sequences);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const std::int64_t s = sequences[i];
    RolloutRecord& record = records[i];
    record.iteration = iteration;
    record.prompt = s / context.samples();
    record.sample = s % context.samples();
    record.dataset_index = data.prompts[static_cast<std::size_t>(record.prompt)];
    record.version = context.model(instruction.vertex).version;
    count(report, record, context.prompt(data, s));
    if (!context.job.config.runtime.rollouts.empty() && context.replay.empty()) {
      report.rollouts += rollout_line(record);
    }
    SequenceData& entry = data.sequences[s];
    entry.score = record.reward;
    entry.rollout = std::move(record.rollout);
  }
}

Evaluation evaluate(const RankContext& context, int replica, int replicas) {
  const Model<float> model = context.model(find_vertex(context.job.graph, "g_pi")).model();
  SamplingOptions options = sampling_options(context, 0);
  options.greedy = true;
  const auto [first, last] =
      replica_sequences(static_cast<std::int64_t>(context.eval_prompts.size()), replicas, replica);
  // As many sequences at a time as generation has on one replica: no more memory than that.
  const std::int64_t batch = (context.job.inputs.workload.sequences() + replicas - 1) / replicas;
  Evaluation result;
  for (std::int64_t begin = first; begin < last; begin += batch) {
    const std::int64_t end = std::min(last, begin + batch);
    std::vector<GenerationRequest> requests;
    for (std::int64_t i = begin; i < end; ++i) {
      requests.push_back({context.eval_prompts[static_cast<std::size_t>(i)].tokens, i, 0});
    }
    const auto results = generate(model, requests, options);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Prompt& prompt = context.eval_prompts[static_cast<std::size_t>(begin) + i];
      const std::string text = response_text(context, results[i]);
      result.reward_sum += reward_of(context, prompt, text, results[i].stopped);
      result.prompts += 1.0;
    }
  }
  return result;
}

}  // namespace rpeg
