#include "runtime/summary.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rpeg/yaml/writer.h"
#include "runtime/executor.h"

namespace rpeg {
namespace {

/// Medians over the iterations after the first.
template <typename NumberOf>
double median_of(const std::vector<Report>& reports, const NumberOf& number_of) {
  std::vector<double> values;
  for (std::size_t i = reports.size() > 1 ? 1 : 0; i < reports.size(); ++i) {
    values.push_back(number_of(reports[i]));
  }
  return median(std::move(values));
}

double predicted_task_s(const Job& job, const std::string& task) {
  const auto found = job.predicted.breakdown.find(task);
  if (found == job.predicted.breakdown.end()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return found->second.compute_s + found->second.comm_s + found->second.bubble_s;
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

void fill_timings(const Job& job, const std::vector<Report>& reports, RunSummary& summary) {
  if (reports.empty()) {
    return;
  }
  const std::vector<std::string> tasks = task_names(job);
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const double measured =
        median_of(reports, [&](const Report& report) { return report.task_s.at(t); });
    summary.timings.push_back({tasks[t], predicted_task_s(job, tasks[t]), measured});
  }
  summary.predicted_iteration_s = job.predicted.iteration_time_s;
  summary.measured_iteration_s =
      median_of(reports, [](const Report& report) { return report.iteration_s; });
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
  if (!summary.iterations.empty()) {
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
    writer.begin_item();
    writer.field("id", timing.id);
    if (!std::isnan(timing.predicted_s)) {
      writer.field("predicted", timing.predicted_s);
    }
    writer.field("measured", timing.measured_s, "median over iterations of the slowest rank");
    writer.end_item();
  }
  writer.end_sequence();
  return writer.text();
}

}  // namespace rpeg
