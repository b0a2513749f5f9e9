#pragma once

#include "job/programs.h"
#include "rpeg/job/compile.h"
#include "rpeg/search/evaluation.h"
#include "support/planning.h"
#include "support/random_small_plan.h"

// Compiled jobs with random plans; they need no files.

namespace rpeg::test {

/// The programs of a plan file.
inline Job job_of(const PlanFile& file) {
  Job job;
  job.inputs = file.inputs;
  job.plan = file.plan;
  job.schedule = file.schedule;
  job.predicted = file.predicted;
  job.plan_digest = "digest-of-the-plan";
  job.config.train.minibatches = file.inputs.policy.minibatches;
  job.seed = file.inputs.seed;
  build_task_graph(&job);
  build_execution(&job);
  check_programs(job, 4);
  return job;
}

/// The programs of a plan, in the order that the simulator finds, with its predictions.
inline Job job_of(const WorkloadConfig& inputs,
                  const Plan& plan,
                  const HardwareProfile& profile = small_hardware()) {
  return job_of(make_plan_file(evaluate_plan(plan, inputs, profile), inputs));
}

/// A job with any plan of any algorithm on up to eight ranks.
inline Job random_job(Rng& rng) {
  while (true) {
    const Job job = job_of(random_small_plan(rng));
    if (job.ranks.size() <= 8) return job;
  }
}

}  // namespace rpeg::test
