#include "training_fixture.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "job/programs.h"
#include "rpeg/base/error.h"
#include "rpeg/base/rng.h"
#include "rpeg/comm/loopback.h"
#include "runtime/inference.h"
#include "runtime/pairs.h"
#include "runtime/training.h"
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

/// Puts the part that a rank holds into the whole tensors; equal copies must have equal bits.
void place(const std::string& vertex,
           const ParameterLayout& layout,
           std::span<const float> flat,
           WholeTensors& whole) {
  for (const ParameterTensor& tensor : layout.tensors) {
    const auto total = std::accumulate(
        tensor.part.shape.begin(), tensor.part.shape.end(), std::int64_t{1}, std::multiplies<>());
    const float nothing = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> held(static_cast<std::size_t>(total), nothing);
    place_shard<float>(tensor.part,
                       flat.subspan(static_cast<std::size_t>(tensor.offset),
                                    static_cast<std::size_t>(tensor.count)),
                       held);
    std::vector<float>& values = whole[vertex + " " + tensor.name];
    values.resize(held.size(), nothing);
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (!std::isnan(held[i])) {
        EXPECT_TRUE(std::isnan(values[i]) || values[i] == held[i])
            << tensor.name << ": copies differ";
        values[i] = held[i];
      }
    }
  }
}

/// What all rank threads write to.
struct Shared {
  const Job& job;
  std::mutex mutex;
  TrainingOutcome outcome{};
  std::map<std::pair<int, std::string>, std::size_t> updates{};  ///< seen of a rank and vertex
};

RunOptions capture_gradients(Shared& shared) {
  RunOptions options;
  options.on_gradient = [&shared](const GradientView& view) {
    const std::lock_guard lock(shared.mutex);
    const std::size_t update = shared.updates[{view.rank, view.vertex}]++;
    auto& gradients = shared.outcome.gradients;
    gradients.resize(std::max(gradients.size(), update + 1));
    place(view.vertex, view.layout, view.gradient, gradients[update]);
  };
  return options;
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

void record_weights(Shared& shared, const RankContext& context, WholeTensors& whole) {
  const std::lock_guard lock(shared.mutex);
  for (const auto& [copy, model] : context.models) {
    if (model.training.has_value()) {
      const auto role = shared.job.copies[static_cast<std::size_t>(copy)].model;
      place(to_string(role), model.layout, model.weights, whole);
      shared.outcome.most_moments =
          std::max(shared.outcome.most_moments,
                   static_cast<std::int64_t>(model.training->optimizer.m.size()));
    }
  }
}

void record_kl_coef(Shared& shared, const RankContext& context) {
  const std::lock_guard lock(shared.mutex);
  for (const auto& [copy, model] : context.models) {
    if (model.training.has_value()) {
      shared.outcome.kl_coefs.insert(model.training->reward_kl_coef.value());
    }
  }
}

IterationData& begin_iteration(RankContext& context, std::int64_t iteration) {
  IterationData& data = context.data[iteration];
  data.prompts.resize(static_cast<std::size_t>(kPrompts));
  std::iota(data.prompts.begin(), data.prompts.end(), std::int64_t{0});
  return data;
}

void train_iteration(Shared& shared, RankContext& context, std::int64_t iteration) {
  const Job& job = shared.job;
  IterationData& data = begin_iteration(context, iteration);
  for (const Instruction& instruction :
       job.ranks[static_cast<std::size_t>(context.world.rank())].program) {
    if (instruction.kind != InstructionKind::kTrain) {
      continue;
    }
    if (context.groups_of(instruction.vertex).is_leader()) {
      for (const std::int64_t s : sequence_list(instruction.sequences)) {
        data.sequences[s] = recorded_sequence(job.inputs, iteration, s);
      }
    }
    train_vertex(context, instruction, iteration);
  }
  const Report& report = context.reports[iteration];
  const std::lock_guard lock(shared.mutex);
  auto& losses = shared.outcome.losses;
  losses.resize(std::max(losses.size(), static_cast<std::size_t>(iteration) + 1));
  auto& loss = losses[static_cast<std::size_t>(iteration)];
  loss["policy"] += report[Sum::kPolicyLoss];
  loss["value"] += report[Sum::kValueLoss];
  loss["norm"] += report[Sum::kGradientNormActor] + report[Sum::kGradientNormCritic];
  loss["entropy"] += report[Sum::kEntropy];
  loss["margin"] += report[Sum::kPairMargin];
  loss["pairs"] += report[Sum::kPairs];
  loss["reference"] += report[Sum::kReferenceKl];
  loss["clipped"] += report[Sum::kClippedTokens];
}

void train_rank(Shared& shared, Comm& world, const RunOptions& options) {
  const auto context = rank_context(shared.job, world, options);
  record_weights(shared, *context, shared.outcome.initial);
  for (std::int64_t k = 0; k < shared.job.config.train.iterations; ++k) {
    train_iteration(shared, *context, k);
  }
  record_kl_coef(shared, *context);
  record_weights(shared, *context, shared.outcome.final_weights);
}

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
    IterationData& data = begin_iteration(*context, 0);
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

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return difference == 0.0 ? 0.0 : std::sqrt(difference / size);
}

WholeTensors updates_of(const TrainingOutcome& outcome) {
  WholeTensors updates = outcome.final_weights;
  for (auto& [name, values] : updates) {
    const auto& before = outcome.initial.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] -= before[i];
    }
  }
  return updates;
}

double worst_distance(const WholeTensors& a, const WholeTensors& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0.0;
  for (const auto& [name, values] : b) {
    const double d = distance(a.at(name), values);
    if (getenv("DBG") && d > 3e-6) fmt::print("  {} {}\n", name, d);
    worst = std::max(worst, d);
  }
  return worst;
}

}  // namespace

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

namespace {

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

}  // namespace

TrainingOutcome train_on_threads(const Job& job) {
  Shared shared{.job = job, .mutex = {}};
  const RunOptions options = capture_gradients(shared);
  on_threads(job, [&](Comm& world) { train_rank(shared, world, options); });
  return std::move(shared.outcome);
}

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

double gradient_distance(const TrainingOutcome& a, const TrainingOutcome& b) {
  EXPECT_EQ(a.gradients.size(), b.gradients.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < b.gradients.size(); ++i) {
    worst = std::max(worst, worst_distance(a.gradients[i], b.gradients[i]));
  }
  return worst;
}

double update_distance(const TrainingOutcome& a, const TrainingOutcome& b) {
  return worst_distance(updates_of(a), updates_of(b));
}

double loss_distance(const TrainingOutcome& a, const TrainingOutcome& b) {
  EXPECT_EQ(a.losses.size(), b.losses.size());
  double worst = 0.0;
  for (std::size_t k = 0; k < b.losses.size(); ++k) {
    for (const auto& [name, loss] : b.losses[k]) {
      worst = std::max(worst, std::abs(a.losses[k].at(name) - loss));
    }
  }
  return worst;
}

}  // namespace rpeg
