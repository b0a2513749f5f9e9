#include "recorded_batch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <exception>
#include <numeric>
#include <thread>

#include "job/programs.h"
#include "rpeg/base/rng.h"
#include "rpeg/comm/loopback.h"
#include "support/test_directory.h"
#include "support/tiny_job.h"

namespace rpeg {
namespace {

constexpr std::int64_t kPrompts = 7;  // uneven for two and three replicas
constexpr std::int64_t kSamples = 2;
constexpr std::int64_t kLongest = 5;

ModelSpec case_spec(bool tied) {
  ModelSpec spec = tiny_spec();
  spec.layers = 3;  // uneven for two stages
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.tied_embeddings = tied;
  spec.initializer_range = 0.3;
  return spec;
}

WorkloadConfig case_inputs(const TrainingCase& options) {
  WorkloadConfig inputs = tiny_inputs(options.algorithm);
  for (auto& model : inputs.models) {
    if (model.has_value()) {
      model = case_spec(options.tied);
    }
  }
  inputs.hardware.gpus_per_node = 8;
  inputs.workload.batch_size = kPrompts;
  inputs.workload.samples_per_prompt =
      options.algorithm == Algorithm::kDpo && options.dpo_mode == DpoMode::kOffline ? 1 : kSamples;
  inputs.workload.generation_length = kLongest;
  if (options.reward_model) {
    inputs.policy.reward = RewardSource::kModel;
    inputs.models[static_cast<std::size_t>(ModelRole::kReward)] = case_spec(options.tied);
  }
  inputs.policy.dpo_mode = options.dpo_mode;
  inputs.policy.allow_ac_share = options.ac_share;
  inputs.policy.recompute_logprobs = options.recompute_logprobs;
  inputs.policy.epochs = options.epochs;
  inputs.policy.minibatches = options.minibatches;
  inputs.optimizer.zero_stage = options.zero_stage;
  inputs.optimizer.recompute = options.recompute;
  return inputs;
}

PlanFile case_plan(const TrainingCase& options) {
  PlanFile file;
  file.inputs = case_inputs(options);
  file.plan.structure.ac_share = options.ac_share;
  const Graph graph = build_graph(file.inputs.policy, file.plan.structure);
  for (std::size_t i = 0; i < graph.vertices.size(); ++i) {
    VertexPlan plan;
    plan.parallelism = options.layout;
    plan.placement.gpus.last = options.layout.gpus() - 1;
    plan.micro_batches = options.micro_batches;
    file.plan.vertices.push_back(plan);
    file.schedule.push_back({graph.vertices[i].name, 0, static_cast<std::int64_t>(i)});
  }
  return file;
}

/// Numbers that depend on what they are of, and on nothing else.
Rng stream_of(std::int64_t iteration, std::int64_t sequence, std::uint64_t what) {
  return Rng(what * 1000003U + static_cast<std::uint64_t>(iteration * 1009 + sequence));
}

std::vector<float> numbers(Rng rng, std::size_t count, double mean, double spread) {
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(mean + spread * (2.0 * rng.uniform() - 1.0)));
  }
  return values;
}

}  // namespace

SequenceData recorded_sequence(const WorkloadConfig& inputs,
                               std::int64_t iteration,
                               std::int64_t s) {
  Rng rng = stream_of(iteration, s, 1);
  const auto length = 1 + static_cast<std::size_t>(rng.uniform() * static_cast<double>(kLongest));
  SequenceData entry;
  Rollout& rollout = entry.rollout.emplace();
  for (std::size_t t = 0; t < length; ++t) {
    rollout.tokens.push_back(static_cast<std::int32_t>(rng.uniform() * 8.0));
  }
  rollout.logprobs = numbers(stream_of(iteration, s, 2), length, -2.0, 0.3);
  entry.ref_logprobs = numbers(stream_of(iteration, s, 3), length, -2.0, 0.3);
  entry.values = numbers(stream_of(iteration, s, 4), length, 0.1, 0.5);
  entry.actor_logprobs = numbers(stream_of(iteration, s, 5), length, -2.0, 0.3);
  if (inputs.policy.algorithm != Algorithm::kDpo || inputs.policy.dpo_mode == DpoMode::kOnline) {
    entry.score = std::floor(stream_of(iteration, s, 6).uniform() * 4.0);  // ties happen
  }
  return entry;
}

std::vector<Prompt> recorded_prompts() {
  std::vector<Prompt> prompts;
  for (std::int64_t p = 0; p < kPrompts; ++p) {
    Prompt prompt;
    Rng rng = stream_of(0, p, 7);
    for (std::int64_t t = 0; t < 2 + p % 3; ++t) {
      prompt.tokens.push_back(static_cast<std::int32_t>(rng.uniform() * 8.0));
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

std::unique_ptr<RankContext> rank_context(const Job& job, Comm& world, const RunOptions& options) {
  const std::filesystem::path actor = job.config.models[0]->path;
  auto context =
      std::make_unique<RankContext>(RankContext{.job = job,
                                                .world = world,
                                                .options = options,
                                                .clock = RunClock(world),
                                                .tokenizer = Tokenizer::load(actor),
                                                .stop_tokens = {},
                                                .prompts = recorded_prompts(),
                                                .eval_prompts = {},
                                                .replay = {},
                                                .models = build_rank_models(job, world.rank()),
                                                .groups = form_groups(job, world),
                                                .data = {},
                                                .reports = {},
                                                .activations = {}});
  for (auto& [copy, model] : context->models) {
    const int block = job.copies[static_cast<std::size_t>(copy)].block;
    model.groups = context->groups.at(block).shard_groups();
  }
  return context;
}

IterationData& recorded_iteration(RankContext& context, std::int64_t iteration) {
  IterationData& data = context.data[iteration];
  data.prompts.resize(static_cast<std::size_t>(kPrompts));
  std::iota(data.prompts.begin(), data.prompts.end(), std::int64_t{0});
  return data;
}

Job training_job(const TrainingCase& options) {
  const PlanFile plan = case_plan(options);
  const std::filesystem::path model = test::test_directory() / "model";
  write_tiny_model(model, case_spec(options.tied));
  Job job;
  job.inputs = plan.inputs;
  job.plan = plan.plan;
  job.schedule = plan.schedule;
  job.config.train.iterations = options.iterations;
  job.config.train.minibatches = options.minibatches;
  job.config.train.epochs = options.epochs;
  job.config.train.decoupled = options.recompute_logprobs;
  job.config.train.learning_rate_actor = 1e-3;
  job.config.train.learning_rate_critic = 2e-3;
  job.config.train.policy.entropy_coef = 0.01;
  job.config.train.policy.kl_coef = options.algorithm == Algorithm::kGrpo ? 0.05 : 0.0;
  const auto source = [&](ModelRole role, std::uint64_t seed) {
    job.config.models[static_cast<std::size_t>(role)] =
        ModelSource{.path = model, .random_init = true, .seed = seed, .init_from = {}};
  };
  source(ModelRole::kActor, 1);
  source(ModelRole::kCritic, 2);
  source(ModelRole::kReference, 3);
  source(ModelRole::kReward, 4);
  build_task_graph(&job);
  build_execution(&job);
  return job;
}

void on_threads(const Job& job, const std::function<void(Comm&)>& body) {
  auto ranks = make_loopback(static_cast<int>(job.ranks.size()));
  std::vector<std::exception_ptr> errors(ranks.size());
  std::vector<std::string> messages(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(*ranks[rank]);
      } catch (const std::exception& error) {
        errors[rank] = std::current_exception();
        messages[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_EQ(messages[rank], messages[0]) << "rank " << rank;
  }
  if (errors[0] != nullptr) {
    std::rethrow_exception(errors[0]);
  }
}

}  // namespace rpeg
