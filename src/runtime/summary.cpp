#include "runtime/summary.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/text.h"
#include "rpeg/job/tasks.h"
#include "rpeg/yaml/writer.h"
#include "runtime/observed.h"
#include "runtime/outputs.h"

namespace rpeg {
namespace {

/// A task whose ratio is off by more than this from that of all tasks together is an outlier.
constexpr double kOutlier = 1.5;

const TaskTimes* find_task(const TraceAnalysis& measured, const std::string& task) {
  const auto found = std::ranges::find(measured.tasks, task, &TaskTimes::task);
  return found == measured.tasks.end() ? nullptr : &*found;
}

/// Bytes that a transfer moves between ranks in one iteration.
double transfer_bytes(const Job& job, const std::string& task) {
  double bytes = 0.0;
  for (const WeightTransfer& transfer : job.transfers) {
    if (transfer_name(job.graph, transfer) != task) {
      continue;
    }
    for (const WeightMessage& message : transfer.messages) {
      bytes += message.from == message.to ? 0.0 : static_cast<double>(message.bytes);
    }
  }
  return bytes;
}

/// Marks the task that adds most to the difference which is not explained by all tasks being slower
/// or faster than predicted by one factor.
void mark_outlier(std::vector<VertexTiming>& timings) {
  double measured_s = 0.0;
  double predicted_s = 0.0;
  for (const VertexTiming& timing : timings) {
    if (timing.predicted_s > 0.0 && timing.measured_s >= 0.0) {
      measured_s += timing.measured_s;
      predicted_s += timing.predicted_s;
    }
  }
  const double common = measured_s / predicted_s;
  VertexTiming* worst = nullptr;
  double worst_s = 0.0;
  for (VertexTiming& timing : timings) {
    const double expected_s = common * timing.predicted_s;
    const double off_s = std::abs(timing.measured_s - expected_s);
    if (off_s > worst_s) {  // false for what has no prediction
      worst_s = off_s;
      worst = &timing;
    }
  }
  if (worst != nullptr) {
    const double ratio = worst->measured_s / (common * worst->predicted_s);
    worst->is_outlier = ratio > kOutlier || ratio < 1.0 / kOutlier;
  }
}

void write_task(YamlWriter& writer, const Job& job, const VertexTiming& timing) {
  writer.begin_item();
  writer.field("id", timing.id);
  const bool is_predicted = !std::isnan(timing.predicted_s);
  if (is_predicted) {
    writer.field("predicted", timing.predicted_s);
  }
  writer.field("measured", timing.measured_s, "median over iterations of the slowest rank");
  if (is_predicted && timing.predicted_s > 0.0) {
    writer.field("ratio", timing.measured_s / timing.predicted_s);
  }
  if (timing.is_outlier) {
    writer.field("outlier", true, "off by itself, not with all the others");
  }
  if (timing.bytes > 0.0 && timing.measured_s > 0.0) {
    writer.field("bytes", timing.bytes, "between ranks, in one iteration");
    writer.field("bandwidth", timing.bytes / timing.measured_s, "bytes/s, of all ranks together");
    const auto predicted = job.predicted.breakdown.find(timing.id);
    if (predicted != job.predicted.breakdown.end() && predicted->second.comm_s > 0.0) {
      writer.field("predicted_bandwidth", predicted->second.bytes / predicted->second.comm_s);
    }
  }
  writer.end_item();
}

void write_ranks(YamlWriter& writer, const RunSummary& summary) {
  if (summary.ranks.empty()) {
    return;
  }
  writer.begin_sequence("utilization");
  for (const RankUse& rank : summary.ranks) {
    writer.begin_item();
    writer.field("rank", static_cast<std::int64_t>(rank.rank));
    writer.field("busy", rank.busy, "share of the time");
    writer.field("waiting", rank.waiting, "for messages and for its group");
    writer.field("moving", rank.moving, "packing, sending, unpacking messages");
    writer.end_item();
  }
  writer.end_sequence();
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

double counted_median(const std::vector<double>& by_iteration) {
  const std::size_t first = first_counted(by_iteration);
  return median({by_iteration.begin() + static_cast<std::ptrdiff_t>(first), by_iteration.end()});
}

TraceAnalysis analyse_reports(const Job& job, const std::vector<Report>& reports) {
  TraceAnalysis analysis;
  const std::vector<std::string> names = task_names(job);
  for (std::size_t task = 0; task < names.size() && !reports.empty(); ++task) {
    TaskTimes& times = analysis.tasks.emplace_back(TaskTimes{.task = names[task], .seconds = {}});
    for (const Report& report : reports) {
      times.seconds.push_back(report.task_s.at(task));
    }
  }
  for (const Report& report : reports) {
    analysis.iteration_s.push_back(report.iteration_s);
  }
  return analysis;
}

TraceAnalysis measure_run(const Job& job, const std::vector<Report>& reports) {
  TraceAnalysis from_reports = analyse_reports(job, reports);
  if (job.config.runtime.trace_dir.empty() || reports.empty()) {
    return from_reports;
  }
  try {
    const Trace trace = load_trace(job.config.runtime.trace_dir);
    if (trace.ranks.size() == job.ranks.size() && trace.faults.empty()) {
      TraceAnalysis analysis = analyse_trace(trace);
      analysis.iteration_s = std::move(from_reports.iteration_s);
      return analysis;
    }
    spdlog::warn("the summary goes without the trace: rank 0 sees {} of {} complete files in {}",
                 trace.ranks.size(),
                 job.ranks.size(),
                 job.config.runtime.trace_dir.string());
  } catch (const Error& error) {
    spdlog::warn("the summary goes without the trace: {}", error.what());
  }
  return from_reports;
}

void fill_timings(const Job& job, const TraceAnalysis& measured, RunSummary& summary) {
  if (measured.iteration_s.empty()) {
    return;
  }
  for (const std::string& task : task_names(job)) {
    const TaskTimes* times = find_task(measured, task);
    VertexTiming timing;
    timing.id = task;
    timing.predicted_s = predicted_task_s(job, task);
    timing.measured_s = times != nullptr ? counted_median(times->seconds) : 0.0;
    timing.bytes = transfer_bytes(job, task);
    summary.timings.push_back(timing);
  }
  mark_outlier(summary.timings);
  summary.ranks = measured.ranks;
  summary.predicted_iteration_s = job.predicted.iteration_time_s;
  summary.measured_iteration_s = counted_median(measured.iteration_s);
}

void summarise_run(const Job& job, const std::vector<Report>& reports, RunSummary& summary) {
  const TraceAnalysis measured = measure_run(job, reports);
  fill_timings(job, measured, summary);
  const auto path = metrics_file(job.config.runtime, "summary.yaml");
  if (path.empty()) {
    return;
  }
  write_file_atomic(path, summary_text(job, summary));
  Provenance provenance;
  provenance.tool = "rpeg-run";
  provenance.version = version();
  provenance.command = "rpeg-run";
  const std::string observed = observed_text(job, measured, provenance);
  if (!observed.empty()) {
    write_file_atomic(metrics_file(job.config.runtime, "observed.yaml"), observed);
  }
}

std::string summary_text(const Job& job, const RunSummary& summary) {
  YamlWriter writer;
  writer.field("schema", "rpeg-summary/1");
  writer.field("units", "si");
  writer.field("algorithm", to_string(job.inputs.policy.algorithm));
  writer.field("plan_digest", job.plan_digest);
  writer.field("ranks", static_cast<std::int64_t>(job.ranks.size()));
  writer.field("iterations", static_cast<std::int64_t>(summary.iterations.size()));
  writer.field("stopped_early", summary.stopped);
  if (!summary.iterations.empty() &&
      !std::isnan(summary.iterations.front().reward_mean)) {  // pairs have none
    writer.field("first_reward", summary.iterations.front().reward_mean);
    writer.field("last_reward", summary.iterations.back().reward_mean);
  }
  if (!std::isnan(summary.final_eval_reward)) {
    writer.field("final_eval_reward", summary.final_eval_reward);
  }
  writer.begin_map("iteration_time");
  writer.field("predicted", summary.predicted_iteration_s);
  writer.field("measured", summary.measured_iteration_s, "median");
  writer.end_map();
  writer.begin_sequence("tasks");
  for (const VertexTiming& timing : summary.timings) {
    write_task(writer, job, timing);
  }
  writer.end_sequence();
  write_ranks(writer, summary);
  return writer.text();
}

}  // namespace rpeg
