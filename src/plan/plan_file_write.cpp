#include <fmt/format.h>

#include "plan/plan_stages.h"
#include "plan/plan_structure.h"
#include "rpeg/base/error.h"
#include "rpeg/plan/plan_file.h"

namespace rpeg {
namespace {

std::string yaml_range(const Range& range) {
  return fmt::format("[{}, {}]", range.first, range.last);
}

/// The keys of a stage, which tell people what it works on; "" for a whole vertex.
std::string stage_keys(const Vertex& vertex, const PlanFile& file) {
  if (vertex.stage == 0) return "";
  const StageSpan span = stage_span(file.plan.structure, vertex.stage, file.inputs.workload);
  // Nine digits: the difference of two shares has a rounding error that nobody wants to read.
  return fmt::format(",\n     stage: {}, share: {:.9g}, tokens: [{:.9g}, {:.9g}]",
                     vertex.stage,
                     span.share,
                     span.from_tokens,
                     span.to_tokens);
}

void write_vertex(YamlWriter& writer,
                  const Vertex& vertex,
                  const VertexPlan& plan,
                  const std::string& stage) {
  const Parallelism& p = plan.parallelism;
  writer.raw_item(
      fmt::format("{{id: {}, op: {}, model: {}, parallelism: [{}, {}, {}], "
                  "micro_batches: {},\n     "
                  "placement: {{racks: {}, nodes: {}, gpus: {}}}{}}}",
                  yaml_scalar(vertex.name),
                  to_string(vertex.op),
                  to_string(vertex.model),
                  p.dp,
                  p.pp,
                  p.tp,
                  plan.micro_batches,
                  yaml_range(plan.placement.racks),
                  yaml_range(plan.placement.nodes),
                  yaml_range(plan.placement.gpus),
                  stage));
}

void write_schedule(YamlWriter& writer, const std::vector<ScheduleEntry>& schedule) {
  if (schedule.empty()) {
    return;
  }
  writer.begin_sequence("schedule");
  for (const ScheduleEntry& entry : schedule) {
    writer.raw_item(fmt::format(
        "{{id: {}, shift: {}, order: {}}}", yaml_scalar(entry.id), entry.shift, entry.order));
  }
  writer.end_sequence();
}

void write_breakdown(YamlWriter& writer, const std::map<std::string, PredictedTask>& breakdown) {
  if (breakdown.empty()) {
    return;
  }
  writer.begin_map("breakdown");
  for (const auto& [id, task] : breakdown) {
    writer.raw(id,
               fmt::format("{{compute: {}, comm: {}, bubble: {}, wait: {}, bytes: {}}}",
                           yaml_scalar(task.compute_s),
                           yaml_scalar(task.comm_s),
                           yaml_scalar(task.bubble_s),
                           yaml_scalar(task.wait_s),
                           yaml_scalar(task.bytes)));
  }
  writer.end_map();
}

void write_prediction(YamlWriter& writer, const Prediction& predicted) {
  if (predicted == Prediction{}) {
    return;
  }
  writer.begin_map("predicted");
  writer.field("iteration_time", predicted.iteration_time_s);
  if (predicted.lower_bound_s != 0.0) {
    writer.field("lower_bound", predicted.lower_bound_s);
  }
  writer.field("throughput", predicted.throughput_tokens_per_s);
  write_breakdown(writer, predicted.breakdown);
  if (!predicted.memory_peak_bytes.empty()) {
    writer.begin_map("memory_peak");
    for (const auto& [id, bytes] : predicted.memory_peak_bytes) {
      writer.field(id, bytes);
    }
    writer.end_map();
  }
  writer.end_map();
}

}  // namespace

std::string plan_file_text(const PlanFile& file, const Provenance* provenance) {
  const FusedGraph graph = task_graph(file.plan.structure, file.inputs);
  check(static_cast<std::size_t>(graph.base.back()) + 1 == file.plan.vertices.size(),
        "a plan decides for every vertex");
  YamlWriter writer;
  writer.field("schema", "rpeg-plan/1");
  writer.field("units", "si");
  writer.field("algorithm", to_string(file.inputs.policy.algorithm));
  writer.raw("structure", structure_yaml(file.plan.structure, file.inputs.workload));
  writer.begin_sequence("vertices");
  for (std::size_t i = 0; i < graph.base.size(); ++i) {
    const Vertex& vertex = graph.graph.vertices[i];
    write_vertex(writer,
                 vertex,
                 file.plan.vertices[static_cast<std::size_t>(graph.base[i])],
                 stage_keys(vertex, file));
  }
  writer.end_sequence();
  write_schedule(writer, file.schedule);
  write_prediction(writer, file.predicted);
  writer.begin_map("inputs");
  write_workload_inputs(writer, file.inputs);
  writer.end_map();
  if (provenance != nullptr) {
    write_provenance(writer, *provenance);
  }
  return writer.text();
}

}  // namespace rpeg
