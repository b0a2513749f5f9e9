#include <fmt/format.h>

#include "rpeg/base/error.h"
#include "rpeg/plan/plan_file.h"

namespace rpeg {
namespace {

std::string range_text(const Range& range) {
  return fmt::format("[{}, {}]", range.first, range.last);
}

void write_vertex(YamlWriter& writer, const Vertex& vertex, const VertexPlan& plan) {
  const Parallelism& p = plan.parallelism;
  writer.raw_item(
      fmt::format("{{id: {}, op: {}, model: {}, parallelism: [{}, {}, {}], "
                  "micro_batches: {},\n     "
                  "placement: {{racks: {}, nodes: {}, gpus: {}}}}}",
                  yaml_scalar(vertex.name),
                  to_string(vertex.op),
                  to_string(vertex.model),
                  p.dp,
                  p.pp,
                  p.tp,
                  plan.micro_batches,
                  range_text(plan.placement.racks),
                  range_text(plan.placement.nodes),
                  range_text(plan.placement.gpus)));
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
  const Graph graph = build_graph(file.inputs.policy, file.plan.structure);
  check(graph.vertices.size() == file.plan.vertices.size(), "a plan decides for every vertex");
  YamlWriter writer;
  writer.field("schema", "rpeg-plan/1");
  writer.field("units", "si");
  writer.field("algorithm", to_string(file.inputs.policy.algorithm));
  writer.raw("structure",
             fmt::format("{{ac_share: false, tau: {{actor: {}, critic: {}}}, cuts: []}}",
                         file.plan.structure.tau_actor,
                         file.plan.structure.tau_critic));
  writer.begin_sequence("vertices");
  for (std::size_t i = 0; i < graph.vertices.size(); ++i) {
    write_vertex(writer, graph.vertices[i], file.plan.vertices[i]);
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
