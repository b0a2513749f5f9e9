#pragma once

#include "rpeg/search/evaluation.h"
#include "support/planning.h"
#include "support/random_config.h"
#include "support/random_plan.h"
#include "support/tiny_job.h"

namespace rpeg::test {

/// A random job of small models on up to 24 devices: any algorithm, structure, split, placement and
/// staleness, scheduled by the simulator or (every fourth) in graph order.
inline PlanFile random_small_plan(Rng& rng) {
  WorkloadConfig config = random_workload_config(rng);
  config.hardware = {};
  config.hardware.racks = random_int(1, 2, rng);
  config.hardware.nodes_per_rack = random_int(1, 3, rng);
  config.hardware.gpus_per_node = random_int(1, 4, rng);
  config.optimizer.max_tp.reset();
  config.optimizer.max_pp.reset();
  config.optimizer.zero_stage = 1;
  config.workload.batch_size = config.policy.minibatches * random_int(1, 8, rng);
  ModelSpec model = small_model();
  model.num_kv_heads = 1 << rng.below(3);
  model.layers = random_int(1, 5, rng);
  model.vocab_size = random_int(200, 300, rng);
  model.tied_embeddings = rng.below(2) == 0;
  for (auto& role : config.models) {
    if (role) role = model;
  }
  if (config.policy.algorithm == Algorithm::kPpo) {
    config.models[static_cast<std::size_t>(ModelRole::kCritic)] = model;
  }
  const Plan plan = random_plan(&config, rng);
  PlanFile file = make_plan_file(evaluate_plan(plan, config, small_hardware()), config);
  if (rng.below(4) == 0) file.schedule.clear();
  return file;
}

}  // namespace rpeg::test
