// Any plan that the planner may make runs to its end, and its trace proves that it ran as compiled.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "rpeg/trace/check_trace.h"
#include "support/copy_job.h"
#include "support/layout_job.h"
#include "support/random_plan.h"

namespace rpeg {
namespace {

/// As many as the environment asks for; the default keeps the suite quick.
int plan_count() {
  const char* text = std::getenv("RPEG_RANDOM_RUNS");
  return text == nullptr ? 50 : std::atoi(text);
}

LayoutJob random_job(Rng& rng) {
  const auto coin = [&] { return rng.below(2) == 0; };
  LayoutJob job;
  job.algorithm = static_cast<Algorithm>(rng.below(3));
  job.dpo_mode = DpoMode::kOnline;
  job.reward = coin() ? RewardSource::kModel : RewardSource::kVerifier;
  job.iterations = 3;
  job.prompts = 8 + 2 * rng.below(3);
  job.minibatches = 1 + rng.below(2);
  job.recompute_logprobs = job.algorithm != Algorithm::kDpo && coin();
  job.fuse = coin();
  job.recompute = static_cast<Recompute>(rng.below(3));
  job.publish = coin() ? Publish::kAuto : Publish::kBuffered;
  job.tied = coin();
  job.gpus = 2 + static_cast<int>(rng.below(7));
  job.seed = rng.next() % 1000;
  return job;
}

/// A random plan of the job, made valid for its structure.
PlanFile random_plan(LayoutJob& job, Rng& rng) {
  PlanFile file;
  job.structure = {};
  WorkloadConfig inputs = layout_inputs(job);
  job.structure = test::random_structure(inputs, rng);
  inputs = layout_inputs(job);
  file.plan.structure = job.structure;
  for (const Vertex& vertex : build_graph(inputs.policy, job.structure).vertices) {
    file.plan.vertices.push_back(test::random_vertex_plan(vertex, inputs, rng));
  }
  file.inputs = std::move(inputs);
  return file;
}

TEST(RandomPlans, RunToTheirEndAsCompiled) {
  Rng rng(2026);
  int ran = 0;
  for (int attempt = 0; ran < plan_count(); ++attempt) {
    ASSERT_LT(attempt, 100 * plan_count()) << "too few random plans are valid";
    LayoutJob options = random_job(rng);
    const PlanFile file = random_plan(options, rng);
    if (!find_violations(
             file.plan, build_graph(file.inputs.policy, file.plan.structure), file.inputs)
             .empty()) {
      continue;
    }
    SCOPED_TRACE(fmt::format("attempt {}:\n{}", attempt, plan_file_text(file, nullptr)));
    const auto directory = fresh_directory(fmt::format("random_{}", ran));
    const Job job = compile_layout_job(options, scheduled(file), directory);
    if (job.ranks.size() < 2) {
      continue;
    }
    const RunSummary summary = run_on_threads(job);
    EXPECT_EQ(summary.iterations.size(), 3U);
    const auto violations = check_trace(job, load_trace(job.config.runtime.trace_dir));
    EXPECT_TRUE(violations.empty()) << violations_text(violations);
    ++ran;
    if (HasFailure()) {
      return;
    }
  }
}

}  // namespace
}  // namespace rpeg
