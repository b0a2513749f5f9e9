#pragma once

#include "job/programs.h"
#include "rpeg/job/compile.h"
#include "support/planning.h"
#include "support/random_plan.h"

// Compiled jobs with random plans; they need no files.

namespace rpeg::test {

/// The programs of a plan. Throws what `check_programs` throws.
inline Job job_of(const WorkloadConfig& inputs, const Plan& plan) {
  Job job;
  job.inputs = inputs;
  job.plan = plan;
  job.plan_digest = "digest-of-the-plan";
  job.config.train.minibatches = inputs.policy.minibatches;
  job.seed = inputs.seed;
  build_task_graph(&job);
  build_execution(&job);
  check_programs(job, 4);
  return job;
}

/// PPO or GRPO with a verifier on any blocks of two nodes of four GPUs.
inline Job random_job(Rng& rng) {
  WorkloadConfig inputs = small_ppo(1, 2, 4);
  if (rng.below(2) == 0) inputs.policy.algorithm = Algorithm::kGrpo;
  inputs.policy.reward = RewardSource::kVerifier;
  inputs.policy.recompute_logprobs = rng.below(3) == 0;
  inputs.policy.minibatches = 1 + rng.below(2);
  Plan plan;
  for (const Vertex& vertex : build_graph(inputs.policy, plan.structure).vertices) {
    plan.vertices.push_back(random_vertex_plan(vertex, inputs, rng));
  }
  return job_of(inputs, plan);
}

}  // namespace rpeg::test
