#include "support/copy_job.h"

#include <gtest/gtest.h>

#include <exception>
#include <thread>

#include "rpeg/comm/loopback.h"
#include "rpeg/spec/model_spec.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

const fs::path kDemo = fs::path(RPEG_SOURCE_DIR) / "configs/demo/copy";

WorkloadConfig inputs_of(const CopyJob& options) {
  const ModelSpec spec = load_hf_config(kDemo / "model");
  WorkloadConfig inputs;
  inputs.hardware.gpus_per_node = 4;
  inputs.models[static_cast<std::size_t>(ModelRole::kActor)] = spec;
  inputs.models[static_cast<std::size_t>(ModelRole::kReference)] = spec;
  if (options.algorithm == Algorithm::kPpo) {
    inputs.models[static_cast<std::size_t>(ModelRole::kCritic)] = spec;
  }
  inputs.workload.batch_size = options.prompts;
  inputs.workload.samples_per_prompt = options.samples;
  inputs.workload.context_length = 4;
  inputs.workload.generation_length = options.generation_length;
  if (options.is_cut) {
    inputs.workload.gen_quantiles = {{0.5, 2},
                                     {1.0, static_cast<double>(options.generation_length)}};
    inputs.policy.allow_fusion = true;
  }
  inputs.policy.allow_ac_share = options.ac_share;
  inputs.policy.algorithm = options.algorithm;
  inputs.policy.reward = RewardSource::kVerifier;
  if (!options.reward_model.empty()) {
    inputs.policy.reward = RewardSource::kModel;
    inputs.models[static_cast<std::size_t>(ModelRole::kReward)] =
        load_hf_config(options.reward_model);
  }
  inputs.policy.epochs = options.epochs;
  inputs.policy.minibatches = options.minibatches;
  inputs.policy.recompute_logprobs = options.recompute_logprobs;
  inputs.seed = options.seed;
  return inputs;
}

/// The tasks of the cut graph in its order, each with the shift of its vertex; in a period those
/// that run for earlier iterations come later.
std::vector<ScheduleEntry> schedule_of(const CopyJob& options, const PlanFile& file) {
  std::vector<ScheduleEntry> schedule;
  const int stages = options.is_cut ? 2 : 1;
  const Graph graph =
      fuse_graph(build_graph(file.inputs.policy, file.plan.structure), stages).graph;
  for (const Vertex& vertex : graph.vertices) {
    const auto at = options.shifts.find(vertex.name.substr(0, vertex.name.find('.')));
    const std::int64_t shift = at == options.shifts.end() ? 0 : at->second;
    schedule.push_back({vertex.name, shift, std::ssize(schedule)});
  }
  return schedule;
}

PlanFile plan_of(const CopyJob& options) {
  PlanFile file;
  file.inputs = inputs_of(options);
  Structure& structure = file.plan.structure;
  structure.tau_actor = options.tau;
  structure.tau_critic = options.algorithm == Algorithm::kPpo ? options.tau : 0;
  structure.ac_share = options.ac_share;
  structure.cuts = options.is_cut ? 1U : 0U;
  for (const Vertex& vertex : build_graph(file.inputs.policy, structure).vertices) {
    const auto block = options.placements.find(vertex.name);
    VertexPlan plan;
    plan.placement =
        parse_placement(block == options.placements.end() ? options.elsewhere : block->second);
    const auto layout = options.layouts.find(vertex.name);
    plan.parallelism.dp = plan.placement.gpu_count();
    if (layout != options.layouts.end()) {
      plan.parallelism = layout->second;
    } else if (options.layout.has_value()) {
      plan.parallelism = *options.layout;
    }
    plan.micro_batches = vertex.op == Op::kGenerate ? 1 : options.micro_batches;
    file.plan.vertices.push_back(plan);
  }
  if (!options.shifts.empty()) {
    file.schedule = schedule_of(options, file);
  }
  return file;
}

JobConfig config_of(const CopyJob& options) {
  JobConfig config;
  config.models[static_cast<std::size_t>(ModelRole::kActor)] =
      ModelSource{.path = kDemo / "model", .random_init = true, .seed = 1, .init_from = {}};
  if (options.algorithm == Algorithm::kPpo) {
    config.models[static_cast<std::size_t>(ModelRole::kCritic)] =
        ModelSource{.path = {}, .random_init = false, .seed = 0, .init_from = ModelRole::kActor};
  }
  config.data.train.path = kDemo / "data/train.jsonl";
  config.data.eval = kDemo / "data/held_out.jsonl";
  config.verifier.kind = VerifierKind::kCopy;
  if (!options.preferences.empty()) {
    config.data.train.path = options.preferences;
    config.data.eval = "";
    config.verifier.kind = VerifierKind::kNone;
  }
  if (!options.reward_model.empty()) {
    config.models[static_cast<std::size_t>(ModelRole::kReward)] =
        ModelSource{.path = options.reward_model, .random_init = false, .seed = 0, .init_from = {}};
    config.data.eval = "";
    config.verifier.kind = VerifierKind::kNone;
  }
  config.train.iterations = options.iterations;
  config.train.learning_rate_actor = options.learning_rate;
  config.train.learning_rate_critic = options.learning_rate;
  config.train.epochs = options.epochs;
  config.train.minibatches = options.minibatches;
  config.train.policy.kl_coef = options.algorithm == Algorithm::kGrpo ? 0.01 : 0.0;
  config.runtime.metrics_dir = "metrics";
  config.runtime.trace_dir = "trace";
  config.runtime.rollouts = "rollouts.jsonl";
  config.runtime.publish = options.publish;
  return config;
}

}  // namespace

Job compile_copy_job(const CopyJob& options, const fs::path& directory) {
  return compile_job(config_of(options), plan_of(options), directory);
}

RunSummary run_on_threads(const Job& job, const RunOptions& options, int count) {
  auto ranks = make_loopback(count > 0 ? count : static_cast<int>(job.ranks.size()));
  std::vector<RunSummary> summaries(ranks.size());
  std::vector<std::exception_ptr> errors(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        summaries[rank] = run_job(job, *ranks[rank], options);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) {
      std::rethrow_exception(error);
    }
  }
  return summaries.front();
}

fs::path fresh_directory(const std::string& name) {
  const fs::path path = test::test_directory() / name;
  fs::remove_all(path);
  fs::create_directories(path);
  return path;
}

}  // namespace rpeg
