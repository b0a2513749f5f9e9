#include "rpeg/plan/plan_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "plan/plan_stages.h"
#include "plan/plan_structure.h"
#include "plan/plan_vertices.h"
#include "rpeg/base/file.h"
#include "rpeg/yaml/reader.h"

namespace rpeg {
namespace {

constexpr Bounds kAmount{0, 1e30};  // seconds, bytes, tokens per second

/// Vertices or stages and weights transfers: what `schedule` and `breakdown` may name. A transfer
/// to a cut vertex may name it with its first stage or without.
std::vector<std::string> task_names(const FusedGraph& graph) {
  std::vector<std::string> names = vertex_names(graph.graph);
  for (const Edge& edge : graph.graph.edges) {
    if (edge.kind != EdgeKind::kWeights) continue;
    const std::string from = names[index(edge.from)];
    const std::string to = names[index(edge.to)];
    names.push_back(from + "->" + to);
    if (graph.graph.vertices[index(edge.to)].stage > 0) {
      names.push_back(from + "->" + to.substr(0, to.rfind('.')));
    }
  }
  return names;
}

/// Vertices of the uncut graph that have stages: `memory_peak` may name them as a whole.
std::vector<std::string> cut_vertices(const FusedGraph& graph) {
  std::vector<std::string> names;
  for (const Vertex& vertex : graph.graph.vertices) {
    if (vertex.stage == 1) names.push_back(vertex.name.substr(0, vertex.name.rfind('.')));
  }
  return names;
}

bool is_in(const std::string& name, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<ScheduleEntry> read_schedule(MapReader& reader, const FusedGraph& graph) {
  std::vector<ScheduleEntry> schedule;
  std::set<std::string> ids;
  std::set<std::int64_t> orders;
  Faults& faults = reader.faults();
  const std::vector<std::string> tasks = task_names(graph);
  reader.sequence("schedule", false, [&](const YamlValue& item, const std::string& path) {
    MapReader entry(item, path, faults);
    const std::size_t before = faults.count();
    schedule.push_back(
        {entry.string("id"), entry.integer("shift", {0, 1e6}), entry.integer("order", {0, 1e6})});
    entry.finish();
    const ScheduleEntry& read = schedule.back();
    if (faults.count() != before) {
      return;
    }
    if (!is_in(read.id, tasks)) {
      entry.fault("id", unknown_id("vertex or weights transfer", read.id, tasks));
    }
    if (!ids.insert(read.id).second) {
      entry.fault("id", fmt::format("`{}` is scheduled twice", read.id));
    }
    if (!orders.insert(read.order).second) {
      entry.fault("order", fmt::format("two entries have the order {}", read.order));
    }
  });
  for (const std::string& name : vertex_names(graph.graph)) {
    if (!schedule.empty() && !ids.contains(name) && faults.empty()) {
      reader.fault("schedule", fmt::format("no entry for the vertex `{}`", name));
    }
  }
  return schedule;
}

PredictedTask read_task(MapReader reader) {
  PredictedTask task;
  task.compute_s = reader.number("compute", kAmount, 0.0);
  task.comm_s = reader.number("comm", kAmount, 0.0);
  task.bubble_s = reader.number("bubble", kAmount, 0.0);
  task.wait_s = reader.number("wait", kAmount, 0.0);
  task.bytes = reader.number("bytes", kAmount, 0.0);
  reader.finish();
  return task;
}

/// Calls `each(reader of the map, key)` for the keys of an optional map whose keys are tasks.
template <typename Each>
void for_each_task(MapReader& reader,
                   const std::string& key,
                   const std::vector<std::string>& tasks,
                   Each each) {
  const YamlValue* block = reader.value(key, false);
  if (block == nullptr) {
    return;
  }
  MapReader map = reader.map(key, false);
  for (const auto& [id, item] : block->fields) {
    if (is_in(id, tasks)) {
      each(map, id);
    } else {
      map.fault(id, unknown_id("task", id, tasks));
    }
  }
}

Prediction read_prediction(MapReader reader, const FusedGraph& graph) {
  Prediction predicted;
  std::vector<std::string> tasks = task_names(graph);
  predicted.iteration_time_s = reader.number("iteration_time", kAmount, 0.0);
  predicted.lower_bound_s = reader.number("lower_bound", kAmount, 0.0);
  predicted.throughput_tokens_per_s = reader.number("throughput", kAmount, 0.0);
  for_each_task(reader, "breakdown", tasks, [&](MapReader& map, const std::string& id) {
    predicted.breakdown[id] = read_task(map.map(id, true));
  });
  for (const std::string& name : cut_vertices(graph)) tasks.push_back(name);
  for_each_task(reader, "memory_peak", tasks, [&](MapReader& map, const std::string& id) {
    predicted.memory_peak_bytes[id] = map.number(id, kAmount);
  });
  reader.finish();
  return predicted;
}

/// Reads `inputs`, and checks that the file's own `algorithm` agrees.
WorkloadConfig read_inputs(MapReader& reader, const std::filesystem::path& directory) {
  const std::string algorithm = reader.string("algorithm");
  MapReader block = reader.map("inputs", true);
  WorkloadConfig inputs = read_workload_config(block, directory);
  block.finish();
  if (reader.faults().empty() && algorithm != to_string(inputs.policy.algorithm)) {
    reader.fault("algorithm",
                 fmt::format("is {} here and {} in inputs.policy.algorithm",
                             algorithm,
                             to_string(inputs.policy.algorithm)));
  }
  return inputs;
}

void check_violations(const PlanFile& file,
                      const std::vector<VertexEntry>& entries,
                      MapReader& reader) {
  const Graph graph = build_graph(file.inputs.policy, file.plan.structure);
  for (const Violation& violation : find_violations(file.plan, graph, file.inputs)) {
    const auto vertex = static_cast<std::int32_t>(find_vertex(graph, violation.vertex));
    const auto entry = std::ranges::find(entries, vertex, &VertexEntry::base);
    if (vertex < 0 || entry == entries.end()) {
      reader.fault("vertices", violation.message);
    } else {
      reader.faults().add(*entry->item, entry->path, violation.vertex + ": " + violation.message);
    }
  }
}

}  // namespace

PlanFile parse_plan_file(const std::string& text, const std::string& file) {
  PlanFile result;
  Faults faults(file);
  const YamlValue root = parse_yaml(text, file);
  MapReader reader(root, "", faults);
  reader.choice("schema", {"rpeg-plan/1"});
  reader.choice("units", {"si"}, 0);
  result.inputs = read_inputs(reader, std::filesystem::path(file).parent_path());
  const bool has_inputs = faults.empty();
  result.plan.structure =
      read_structure(reader.map("structure", false), has_inputs ? &result.inputs : nullptr);
  // Which vertices there are follows from the inputs: ids mean something only when these are right.
  const bool has_graph = faults.empty();
  const FusedGraph graph =
      has_graph ? task_graph(result.plan.structure, result.inputs) : FusedGraph{};
  std::vector<VertexEntry> entries;
  reader.sequence("vertices", true, [&](const YamlValue& item, const std::string& path) {
    entries.push_back(
        read_vertex(item, path, graph, result.plan.structure, result.inputs.workload, faults));
  });
  if (has_graph) {
    result.plan.vertices = match_vertices(entries, graph, reader);
    result.schedule = read_schedule(reader, graph);
    result.predicted = read_prediction(reader.map("predicted", false), graph);
  }
  for (const char* key : {"schedule", "predicted", "provenance"}) {
    reader.ignore(key);
  }
  reader.finish();
  faults.throw_if_any();
  check_violations(result, entries, reader);
  faults.throw_if_any();
  return result;
}

PlanFile load_plan_file(const std::filesystem::path& path) {
  return parse_plan_file(read_file(path), path.string());
}

}  // namespace rpeg
