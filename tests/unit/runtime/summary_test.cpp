#include "runtime/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "support/random_job.h"
#include "support/test_directory.h"
#include "support/virtual_run.h"

namespace rpeg {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Job one_vertex_job() {
  Job job;
  job.graph.vertices = {{"g_pi", Op::kGenerate, ModelRole::kActor}};
  job.predicted.breakdown["g_pi"] = {.compute_s = 1.0, .comm_s = 0.5, .bubble_s = 0.25};
  return job;
}

/// Three iterations of one task, the first slow.
std::vector<Report> three_reports() {
  std::vector<Report> reports(3);
  for (std::size_t k = 0; k < 3; ++k) {
    reports[k].task_s = {k == 0 ? 100.0 : 2.0};
    reports[k].iteration_s = k == 0 ? 100.0 : 3.0;
  }
  return reports;
}

TEST(Summary, MediansLeaveTheFirstIterationOut) {
  EXPECT_DOUBLE_EQ(median({3.0, 1.0, 2.0}), 2.0);
  EXPECT_DOUBLE_EQ(median({4.0, 1.0}), 2.5);
  EXPECT_TRUE(std::isnan(median({})));
  EXPECT_DOUBLE_EQ(counted_median({100.0, 1.0, 2.0}), 1.5);
  EXPECT_DOUBLE_EQ(counted_median({100.0}), 100.0);
  const Job job = one_vertex_job();
  RunSummary summary;
  fill_timings(job, analyse_reports(job, three_reports()), summary);
  ASSERT_EQ(summary.timings.size(), 1U);
  EXPECT_DOUBLE_EQ(summary.timings[0].predicted_s, 1.75);
  EXPECT_DOUBLE_EQ(summary.timings[0].measured_s, 2.0);
  EXPECT_DOUBLE_EQ(summary.measured_iteration_s, 3.0);
  EXPECT_TRUE(summary.ranks.empty());
}

/// Three tasks that are predicted to take 1 s each.
RunSummary summary_of(const std::vector<double>& seconds) {
  Job job;
  TraceAnalysis measured;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const std::string name = "v" + std::to_string(i);
    job.graph.vertices.push_back({name, Op::kInferReference, ModelRole::kReference});
    job.predicted.breakdown[name].compute_s = 1.0;
    measured.tasks.push_back({name, {seconds[i]}});
  }
  measured.iteration_s = {1.0};
  RunSummary summary;
  fill_timings(job, measured, summary);
  return summary;
}

TEST(Summary, MarksTheTaskThatIsOffByItself) {
  const auto outliers = [](const RunSummary& summary) {
    std::vector<bool> flags;
    for (const VertexTiming& timing : summary.timings) {
      flags.push_back(timing.is_outlier);
    }
    return flags;
  };
  EXPECT_EQ(outliers(summary_of({2.0, 2.1, 1.9})), (std::vector<bool>{false, false, false}));
  EXPECT_EQ(outliers(summary_of({1.0, 5.0, 1.0})), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(outliers(summary_of({5.0})), (std::vector<bool>{false}));
}

TEST(Summary, TellsTheBandwidthOfATransfer) {
  WorkloadConfig inputs = test::small_ppo(1, 2, 1);
  inputs.policy.algorithm = Algorithm::kGrpo;
  inputs.policy.reward = RewardSource::kVerifier;
  inputs.policy.kl_reference = false;
  const Plan plan{
      {}, {{{1, 1, 1}, 1, {{0, 0}, {0, 0}, {0, 0}}}, {{1, 1, 1}, 1, {{0, 0}, {1, 1}, {0, 0}}}}};
  Job job = test::job_of(inputs, plan);
  job.predicted.breakdown["t_pi->g_pi"] = {.comm_s = 2.0, .bytes = 1e6};
  TraceAnalysis measured;
  measured.tasks = {{"t_pi->g_pi", {9.0, 4.0}}};
  measured.iteration_s = {10.0, 5.0};
  RunSummary summary;
  fill_timings(job, measured, summary);
  const VertexTiming& transfer = summary.timings.back();
  ASSERT_EQ(transfer.id, "t_pi->g_pi");
  double bytes = 0.0;
  for (const WeightMessage& message : job.transfers.at(0).messages) {
    bytes += static_cast<double>(message.bytes);
  }
  EXPECT_GT(bytes, 0.0);
  EXPECT_EQ(transfer.bytes, bytes);
  const std::string text = summary_text(job, summary);
  EXPECT_THAT(text, HasSubstr("bandwidth: " + yaml_scalar(bytes / 4.0)));
  EXPECT_THAT(text, HasSubstr("predicted_bandwidth: " + yaml_scalar(5e5)));
  EXPECT_THAT(text, Not(HasSubstr("utilization")));
}

TEST(Summary, ComesFromTheTraceWhenItIsComplete) {
  Rng rng(6);
  Job job = test::random_job(rng);
  job.config.runtime.trace_dir = test::test_directory() / "summary_trace";
  const Trace trace = virtual_run(job, {.iterations = 3});
  save_trace(trace, job.config.runtime.trace_dir);
  std::vector<Report> reports(3);
  for (Report& report : reports) {
    report.task_s.resize(job.graph.vertices.size() + job.transfers.size());
    report.iteration_s = 7.0;
  }
  RunSummary summary;
  fill_timings(job, measure_run(job, reports), summary);
  EXPECT_EQ(summary.ranks.size(), job.ranks.size());
  EXPECT_EQ(summary.measured_iteration_s, 7.0);
  for (const VertexTiming& timing : summary.timings) {
    EXPECT_GT(timing.measured_s, 0.0) << timing.id;
  }
  EXPECT_THAT(summary_text(job, summary), HasSubstr("utilization:\n  - rank: 0\n    busy: "));
  // Without one rank's file the reports say what they can.
  std::filesystem::remove(job.config.runtime.trace_dir / "rank_0.jsonl");
  RunSummary less;
  fill_timings(job, measure_run(job, reports), less);
  EXPECT_TRUE(less.ranks.empty());
  EXPECT_EQ(less.timings.front().measured_s, 0.0);
}

}  // namespace
}  // namespace rpeg
