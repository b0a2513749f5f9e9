#pragma once

#include "job/programs.h"
#include "rpeg/job/compile.h"
#include "rpeg/search/evaluation.h"
#include "support/planning.h"
#include "support/random_plan.h"

// Compiled jobs with random plans; they need no files.

namespace rpeg::test {

/// The programs of a plan, in the order that the simulator finds, with its predictions.
inline Job job_of(const WorkloadConfig& inputs,
                  const Plan& plan,
                  const HardwareProfile& profile = small_hardware()) {
  const PlanFile file = make_plan_file(evaluate_plan(plan, inputs, profile), inputs);
  Job job;
  job.inputs = inputs;
  job.plan = plan;
  job.schedule = file.schedule;
  job.predicted = file.predicted;
  job.plan_digest = "digest-of-the-plan";
  job.config.train.minibatches = inputs.policy.minibatches;
  job.seed = inputs.seed;
  build_task_graph(&job);
  build_execution(&job);
  check_programs(job, 4);
  return job;
}

/// PPO, GRPO, DPO offline or online on two nodes of two GPUs, with a reward model or a verifier.
inline WorkloadConfig random_job_inputs(Rng& rng) {
  WorkloadConfig inputs = small_ppo(1, 2, 2);
  inputs.workload.gen_quantiles = {{0.5, 8.0}, {0.8, 20.0}, {1.0, 32.0}};
  inputs.policy.minibatches = 1 + rng.below(2);
  if (rng.below(2) == 0) inputs.policy.reward = RewardSource::kVerifier;
  switch (rng.below(4)) {
    case 0:
      inputs.policy.algorithm = Algorithm::kDpo;
      inputs.policy.dpo_mode = rng.below(2) == 0 ? DpoMode::kOffline : DpoMode::kOnline;
      break;
    case 1:
      inputs.policy.algorithm = Algorithm::kGrpo;
      inputs.policy.recompute_logprobs = rng.below(2) == 0;
      break;
    default:
      inputs.policy.recompute_logprobs = rng.below(3) == 0;
      break;
  }
  return inputs;
}

/// A job with any plan: blocks, splits, staleness, a shared trunk, cuts.
inline Job random_job(Rng& rng) {
  const WorkloadConfig inputs = random_job_inputs(rng);
  Plan plan;
  while (true) {
    change_plan(&plan, inputs, rng);
    const Graph graph = build_graph(inputs.policy, plan.structure);
    if (find_violations(plan, graph, inputs).empty()) return job_of(inputs, plan);
  }
}

}  // namespace rpeg::test
