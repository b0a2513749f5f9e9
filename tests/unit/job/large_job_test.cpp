// Compiling for many ranks: how long it takes and how large run.yaml gets.

#include <gtest/gtest.h>

#include <chrono>
#include <iostream>

#include "support/tiny_job.h"

namespace rpeg {
namespace {

constexpr double kMostSeconds = 60.0;
constexpr std::size_t kMostBytes = 50'000'000;

WorkloadConfig large_inputs() {
  WorkloadConfig inputs = tiny_inputs(Algorithm::kPpo);
  inputs.hardware.nodes_per_rack = 128;
  inputs.hardware.gpus_per_node = 8;
  ModelSpec model = tiny_spec();
  model.layers = 32;
  model.hidden_dim = 64;
  model.ffn_dim = 128;
  model.num_heads = 8;
  model.num_kv_heads = 8;
  model.head_dim = 8;
  model.vocab_size = 1024;
  for (auto& role : inputs.models) role = model;
  inputs.workload.batch_size = 2048;
  inputs.workload.samples_per_prompt = 2;
  inputs.workload.generation_length = 1024;
  inputs.policy.minibatches = 2;
  return inputs;
}

void compile_and_measure(const char* what, const PlanFile& plan) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const Job job = tiny_job(plan);
  const double built_s = seconds();
  check_programs(job, 3);
  const double checked_s = seconds();
  const std::size_t bytes = job_text(job, nullptr).size();
  std::cout << what << ": " << job.ranks.size() << " ranks, built in " << built_s
            << " s, checked in " << checked_s - built_s << " s, run.yaml of " << bytes
            << " bytes in " << seconds() - checked_s << " s\n";
  EXPECT_EQ(job.ranks.size(), 1024U) << what;
  EXPECT_LT(seconds(), kMostSeconds) << what;
  EXPECT_LT(bytes, kMostBytes) << what;
}

TEST(LargeJob, ColocatedCompilesInSeconds) {
  const std::string all = "r0 n[0-127] g[0-7]";
  compile_and_measure("co-located",
                      tiny_plan(large_inputs(),
                                {{"g_pi", all + " as 512 1 2"},
                                 {"i_V", all},
                                 {"i_ref", all + " as 256 2 2"},
                                 {"t_V", all + " as 64 2 8"},
                                 {"t_pi", all + " as 64 2 8"}}));
}

TEST(LargeJob, DisjointCutAndStaleCompilesInSeconds) {
  WorkloadConfig inputs = large_inputs();
  inputs.workload.gen_quantiles = {{0.5, 256}, {0.75, 512}, {1.0, 1024}};
  compile_and_measure("disjoint",
                      tiny_plan(inputs,
                                {{"g_pi", "r0 n[0-63] g[0-7] as 512 1 1"},
                                 {"i_V", "r0 n[64-79] g[0-7] as 64 1 2"},
                                 {"i_ref", "r0 n[80-95] g[0-7] as 32 2 2"},
                                 {"t_V", "r0 n[96-111] g[0-7] as 8 2 8"},
                                 {"t_pi", "r0 n[112-127] g[0-7] as 4 4 8"}},
                                {.tau_actor = 1, .tau_critic = 1, .cuts = 3}));
}

}  // namespace
}  // namespace rpeg
