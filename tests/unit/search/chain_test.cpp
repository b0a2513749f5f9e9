#include "search/chain.h"

#include <gtest/gtest.h>

#include "rpeg/search/baseline.h"
#include "support/planning.h"

namespace rpeg {
namespace {

/// So cold and patient that a chain only ever descends, and never goes back to its best plan.
WorkloadConfig descending_job() {
  WorkloadConfig config = test::small_ppo(1, 2, 4);
  config.optimizer.t_init = 1e-12;
  config.optimizer.t_min = 1e-12;
  config.optimizer.stag_window = 1'000'000;
  return config;
}

search::ChainResult run(const WorkloadConfig& config, const search::ChainTask& task) {
  const HardwareProfile profile = test::small_hardware();
  const search::Space space = search::build_space(config, {});
  search::Workbench bench(space, profile);
  search::ChainStatus status;
  return search::run_chain(bench, task, status);
}

/// A walk at a plan far worse than the best one known descends from where it is: proposals are
/// compared with the present plan, not with the best.
TEST(Chain, ComparesAProposalWithThePresentPlan) {
  const WorkloadConfig config = descending_job();
  search::ChainTask task;
  task.seed = 5;
  task.budget = 20'000;
  task.starts = {greedy_plan(config, test::small_hardware())};
  const Plan good = run(config, task).top.plans().front().plan;
  const double good_s = evaluate_plan(good, config, test::small_hardware()).steady.period_s;
  Plan bad = good;
  for (VertexPlan& vertex : bad.vertices) vertex = {{1, 1, 1}, 1, {{0, 0}, {0, 0}, {0, 0}}};
  const double bad_s = evaluate_plan(bad, config, test::small_hardware()).steady.period_s;
  ASSERT_GT(bad_s, 2.0 * good_s);
  task.starts = {bad, good};
  task.budget = 600;  // too few to come near the good plan
  EXPECT_GT(run(config, task).accepted, 5);
}

/// The clock is looked at on every step: a walk that accepts nothing ends in time too.
TEST(Chain, LooksAtTheClockWhenNothingIsAccepted) {
  // Where all vertices are the same everywhere but one may work in pieces, the best plan has worse
  // neighbours only.
  WorkloadConfig config = descending_job();
  config.hardware.nodes_per_rack = 1;
  config.hardware.gpus_per_node = 1;
  search::ChainTask task;
  task.seed = 5;
  task.budget = 3'000;
  task.starts = {greedy_plan(config, test::small_hardware())};
  task.starts = {run(config, task).top.plans().front().plan};
  task.budget = 1'000'000'000'000;
  const auto begin = search::Clock::now();
  task.deadline = begin + std::chrono::milliseconds(200);
  const search::ChainResult result = run(config, task);
  EXPECT_EQ(result.accepted, 0);
  EXPECT_EQ(result.end, SearchEnd::kTime);
  EXPECT_LT(search::Clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace rpeg
