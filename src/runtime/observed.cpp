#include "runtime/observed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "rpeg/job/tasks.h"
#include "rpeg/spec/lengths.h"
#include "runtime/summary.h"

namespace rpeg {
namespace {

WorkClass class_of(Op op) {
  if (op == Op::kGenerate) {
    return WorkClass::kGenerate;
  }
  return is_training(op) ? WorkClass::kTrain : WorkClass::kInfer;
}

Tier tier_between(const RankSpec& a, const RankSpec& b, const ClusterSpec& cluster) {
  if (a.node == b.node) {
    return Tier::kNode;
  }
  return a.node / cluster.nodes_per_rack == b.node / cluster.nodes_per_rack ? Tier::kRack
                                                                            : Tier::kCluster;
}

Tier block_tier(const Placement& block) {
  if (block.racks.count() > 1) {
    return Tier::kCluster;
  }
  return block.nodes.count() > 1 ? Tier::kRack : Tier::kNode;
}

/// The slowest tier that a message of a transfer crosses.
Tier transfer_tier(const Job& job, const WeightTransfer& transfer) {
  Tier slowest = Tier::kNode;
  for (const WeightMessage& message : transfer.messages) {
    const RankSpec& from = job.ranks.at(static_cast<std::size_t>(message.from));
    const RankSpec& to = job.ranks.at(static_cast<std::size_t>(message.to));
    slowest = std::max(slowest, tier_between(from, to, job.inputs.hardware));
  }
  return slowest;
}

struct TaskClass {
  WorkClass work;
  Tier tier;
};

std::optional<TaskClass> class_of_task(const Job& job, const std::string& task) {
  for (std::size_t i = 0; i < job.graph.vertices.size(); ++i) {
    if (job.graph.vertices[i].name == task) {
      const VertexPlan& plan = plan_of(job, VertexId{static_cast<std::int32_t>(i)});
      return TaskClass{class_of(job.graph.vertices[i].op), block_tier(plan.placement)};
    }
  }
  for (const WeightTransfer& transfer : job.transfers) {
    if (transfer_name(job.graph, transfer) == task) {
      return TaskClass{WorkClass::kTransfer, transfer_tier(job, transfer)};
    }
  }
  return std::nullopt;
}

/// Seconds of some samples and what was predicted for each.
struct Samples {
  double measured_s = 0.0;
  double predicted_s = 0.0;
  double squares = 0.0;  ///< Σ measured² / predicted
  std::int64_t count = 0;
};

ObservedFactor factor_of(const Samples& samples) {
  if (samples.count == 0 || samples.measured_s <= 0.0) {
    return {};
  }
  const double factor = samples.measured_s / samples.predicted_s;
  const double variance = samples.squares / samples.predicted_s - factor * factor;
  return {.factor = factor, .spread = std::sqrt(std::max(0.0, variance)), .samples = samples.count};
}

/// Standard deviation over all iterations but the first.
double spread_of(const std::vector<double>& values) {
  const std::size_t first = first_counted(values);
  const auto count = static_cast<double>(values.size() - first);
  double sum = 0.0;
  for (std::size_t i = first; i < values.size(); ++i) {
    sum += values[i];
  }
  double squares = 0.0;
  for (std::size_t i = first; i < values.size(); ++i) {
    squares += (values[i] - sum / count) * (values[i] - sum / count);
  }
  return std::sqrt(squares / count);
}

void write_tasks(YamlWriter& writer, const Job& job, const TraceAnalysis& measured) {
  writer.begin_sequence("tasks");
  for (const TaskTimes& task : measured.tasks) {
    const std::optional<TaskClass> place = class_of_task(job, task.task);
    const double predicted_s = predicted_task_s(job, task.task);
    if (place && predicted_s > 0.0) {
      writer.raw_item(fmt::format("{{id: {}, class: {}, tier: {}, predicted: {}, measured: {}}}",
                                  task.task,
                                  to_string(place->work),
                                  to_string(place->tier),
                                  yaml_scalar(predicted_s),
                                  yaml_scalar(counted_median(task.seconds))));
    }
  }
  writer.end_sequence();
}

void write_responses(YamlWriter& writer, const Job& job, const TraceAnalysis& measured) {
  if (measured.response_tokens.empty()) {
    return;
  }
  std::vector<std::string> points;
  for (const LengthQuantile& point :
       length_quantiles(measured.response_tokens, job.inputs.workload.generation_length)) {
    points.push_back(yaml_flow({yaml_scalar(point.probability), yaml_scalar(point.tokens)}));
  }
  writer.raw("gen_quantiles", yaml_flow(points), "of all responses; for workload.gen_quantiles");
  if (measured.verifier_s > 0.0) {
    writer.field("verifier_seconds", measured.verifier_s, "mean per response");
  }
}

}  // namespace

ObservedFactors observed_factors(const Job& job, const TraceAnalysis& measured) {
  std::array<std::array<Samples, kTiers>, kWorkClasses> samples{};
  for (const TaskTimes& task : measured.tasks) {
    const std::optional<TaskClass> place = class_of_task(job, task.task);
    const double predicted_s = predicted_task_s(job, task.task);
    if (!place || !(predicted_s > 0.0)) {
      continue;
    }
    Samples& sum =
        samples[static_cast<std::size_t>(place->work)][static_cast<std::size_t>(place->tier)];
    for (std::size_t i = first_counted(task.seconds); i < task.seconds.size(); ++i) {
      sum.measured_s += task.seconds[i];
      sum.predicted_s += predicted_s;
      sum.squares += task.seconds[i] * task.seconds[i] / predicted_s;
      ++sum.count;
    }
  }
  ObservedFactors factors;
  for (std::size_t work = 0; work < kWorkClasses; ++work) {
    for (std::size_t tier = 0; tier < kTiers; ++tier) {
      factors.at[work][tier] = factor_of(samples[work][tier]);
    }
  }
  return factors;
}

std::string observed_text(const Job& job,
                          const TraceAnalysis& measured,
                          const Provenance& provenance) {
  const ObservedFactors factors = observed_factors(job, measured);
  if (!factors.any()) {
    return "";
  }
  YamlWriter writer;
  writer.field("schema", "rpeg-observed/1");
  writer.field("units", "si");
  writer.field("plan_digest", job.plan_digest);
  writer.field("iterations", static_cast<std::int64_t>(measured.iteration_s.size()));
  writer.begin_map("iteration_time");
  writer.field("predicted", job.predicted.iteration_time_s);
  writer.field("measured", counted_median(measured.iteration_s), "median");
  writer.field("spread", spread_of(measured.iteration_s), "standard deviation");
  writer.end_map();
  write_observed_factors(writer, factors);
  write_responses(writer, job, measured);
  write_tasks(writer, job, measured);
  write_provenance(writer, provenance);
  return writer.text();
}

}  // namespace rpeg
