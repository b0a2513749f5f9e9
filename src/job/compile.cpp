#include "rpeg/job/compile.h"

#include <fmt/format.h>

#include "job/programs.h"
#include "job/supported.h"
#include "job/verify_inputs.h"
#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/job/memory.h"

namespace rpeg {
namespace {

constexpr int kProvenIterations = 3;

void check_valid(const Plan& plan, const Graph& graph, const WorkloadConfig& inputs) {
  const std::vector<Violation> violations = find_violations(plan, graph, inputs);
  if (violations.empty()) {
    return;
  }
  std::string text = "the plan is not valid:";
  for (const Violation& violation : violations) {
    text += fmt::format(
        "\n  {}{}{}", violation.vertex, violation.vertex.empty() ? "" : ": ", violation.message);
  }
  throw Error(ErrorKind::kUsage, text);
}

/// The plan was priced for these numbers: training with others would make its times wrong.
void check_agreement(const TrainConfig& train, const PolicySpec& policy) {
  const auto compare = [&](const char* name, std::int64_t job, std::int64_t plan) {
    if (job != plan) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("train.{}.{} is {}, but the plan was made for policy.{} = {}; change "
                              "one of them (and plan again)",
                              to_string(policy.algorithm),
                              name,
                              job,
                              name,
                              plan));
    }
  };
  compare("epochs", train.epochs, policy.epochs);
  compare("minibatches", train.minibatches, policy.minibatches);
}

void resolve_outputs(RuntimeConfig* runtime, const std::filesystem::path& output_dir) {
  const auto base = std::filesystem::absolute(output_dir);
  for (std::filesystem::path* path :
       {&runtime->trace_dir, &runtime->metrics_dir, &runtime->save_dir, &runtime->rollouts}) {
    if (!path->empty()) {
      *path = (base / *path).lexically_normal();
    }
  }
}

}  // namespace

Job compile_job(const JobConfig& config,
                const PlanFile& plan,
                const std::filesystem::path& output_dir,
                std::optional<std::int64_t> device_bytes) {
  check_supported(plan);
  Job job;
  job.inputs = plan.inputs;
  job.config = config;
  job.plan = plan.plan;
  job.schedule = plan.schedule;
  job.predicted = plan.predicted;
  build_task_graph(&job);
  check_graph(job.graph);
  check_valid(job.plan, build_graph(plan.inputs.policy, plan.plan.structure), job.inputs);
  check_agreement(config.train, plan.inputs.policy);
  job.seed = config.seed.value_or(plan.inputs.seed);
  job.plan_digest = sha256(plan_file_text(plan, nullptr));
  resolve_outputs(&job.config.runtime, output_dir);
  verify_inputs(&job);
  build_execution(&job);
  check_programs(job, kProvenIterations);
  if (device_bytes) {
    check_memory(job, *device_bytes);
  }
  return job;
}

}  // namespace rpeg
