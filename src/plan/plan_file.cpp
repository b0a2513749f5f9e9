#include "rpeg/plan/plan_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "rpeg/base/file.h"
#include "rpeg/base/text.h"
#include "rpeg/yaml/reader.h"

namespace rpeg {
namespace {

constexpr double kMostGpus = 1e6;
constexpr Bounds kAmount{0, 1e30};  // seconds, bytes, tokens per second

/// One item of `vertices` before it is matched with the graph.
struct VertexEntry {
  const YamlValue* item = nullptr;
  std::string path;
  std::string id;
  VertexPlan plan;
};

/// `count` whole numbers of a flow list; a fault and an empty result otherwise.
std::vector<int> read_ints(MapReader& reader,
                           const std::string& key,
                           std::size_t count,
                           Bounds bounds) {
  Faults& faults = reader.faults();
  const std::size_t before = faults.count();
  std::vector<int> result;
  reader.sequence(key, true, [&](const YamlValue& item, const std::string& path) {
    result.push_back(static_cast<int>(yaml_integer(item, path, faults, bounds)));
  });
  if (faults.count() == before && result.size() != count) {
    reader.fault(key, fmt::format("expected {} numbers, found {}", count, result.size()));
  }
  return faults.count() == before && result.size() == count ? result : std::vector<int>{};
}

Range read_range(MapReader& reader, const std::string& key) {
  const std::vector<int> ends = read_ints(reader, key, 2, {0, kMostGpus});
  if (ends.empty()) {
    return {};
  }
  if (ends[0] > ends[1]) {
    reader.fault(key, fmt::format("the range [{}, {}] ends before it starts", ends[0], ends[1]));
    return {};
  }
  return {ends[0], ends[1]};
}

Placement read_placement(MapReader reader) {
  Placement placement;
  placement.racks = read_range(reader, "racks");
  placement.nodes = read_range(reader, "nodes");
  placement.gpus = read_range(reader, "gpus");
  reader.finish();
  const double gpus =
      1.0 * placement.racks.count() * placement.nodes.count() * placement.gpus.count();
  if (gpus > kMostGpus) {
    reader.fault("gpus", fmt::format("the block holds {} GPUs, more than {}", gpus, kMostGpus));
    return {};
  }
  return placement;
}

Parallelism read_parallelism(MapReader& reader) {
  const std::vector<int> degrees = read_ints(reader, "parallelism", 3, {1, kMostGpus});
  if (degrees.empty()) {
    return {};
  }
  if (1.0 * degrees[0] * degrees[1] * degrees[2] > kMostGpus) {
    reader.fault("parallelism",
                 fmt::format("dp {} x pp {} x tp {} are more than {} GPUs",
                             degrees[0],
                             degrees[1],
                             degrees[2],
                             kMostGpus));
    return {};
  }
  return {degrees[0], degrees[1], degrees[2]};
}

/// `op` and `model` are for people: where given, they must say what the graph says.
void check_label(MapReader& reader, const std::string& key, const std::string& expected) {
  const std::string label = reader.string(key, expected);
  if (label != expected) {
    reader.fault(key, fmt::format("expected {} for this vertex, found {}", expected, label));
  }
}

VertexEntry read_vertex(const YamlValue& item,
                        const std::string& path,
                        const Graph& graph,
                        Faults& faults) {
  MapReader reader(item, path, faults);
  VertexEntry entry{&item, path, reader.string("id"), {}};
  const auto vertex = std::find_if(graph.vertices.begin(),
                                   graph.vertices.end(),
                                   [&](const Vertex& v) { return v.name == entry.id; });
  if (vertex != graph.vertices.end()) {
    check_label(reader, "op", to_string(vertex->op));
    check_label(reader, "model", to_string(vertex->model));
  }
  reader.ignore("op");
  reader.ignore("model");
  entry.plan.parallelism = read_parallelism(reader);
  entry.plan.micro_batches = reader.integer("micro_batches", {1, 1e9}, 1);
  entry.plan.placement = read_placement(reader.map("placement", true));
  reader.finish();
  return entry;
}

std::vector<std::string> vertex_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Vertex& vertex : graph.vertices) {
    names.push_back(vertex.name);
  }
  return names;
}

std::string unknown_id(const std::string& kind,
                       const std::string& id,
                       const std::vector<std::string>& names) {
  const std::string near = nearest(id, names);
  return fmt::format("`{}` is no {} of this job; there are {}{}",
                     id,
                     kind,
                     fmt::join(names, ", "),
                     near.empty() ? "" : fmt::format("; did you mean `{}`?", near));
}

/// Puts the entries into the graph's order; every vertex must appear exactly once.
std::vector<VertexPlan> match_vertices(const std::vector<VertexEntry>& entries,
                                       const Graph& graph,
                                       MapReader& reader) {
  const std::vector<std::string> names = vertex_names(graph);
  std::vector<VertexPlan> plans(names.size());
  std::set<std::string> seen;
  for (const VertexEntry& entry : entries) {
    const auto at = std::find(names.begin(), names.end(), entry.id);
    if (at == names.end()) {
      reader.faults().add(*entry.item, entry.path, unknown_id("vertex", entry.id, names));
    } else if (!seen.insert(entry.id).second) {
      reader.faults().add(*entry.item, entry.path, fmt::format("`{}` appears twice", entry.id));
    } else {
      plans[static_cast<std::size_t>(at - names.begin())] = entry.plan;
    }
  }
  for (const std::string& name : names) {
    if (!seen.contains(name)) {
      reader.fault("vertices", fmt::format("no entry for the vertex `{}`", name));
    }
  }
  return plans;
}

/// Vertices and weights transfers: what `schedule` and `breakdown` may name.
std::vector<std::string> task_names(const Graph& graph) {
  std::vector<std::string> names = vertex_names(graph);
  for (const Edge& edge : graph.edges) {
    if (edge.kind == EdgeKind::kWeights) {
      names.push_back(names[index(edge.from)] + "->" + names[index(edge.to)]);
    }
  }
  return names;
}

bool is_in(const std::string& name, const std::vector<std::string>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<ScheduleEntry> read_schedule(MapReader& reader, const Graph& graph) {
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
  for (const std::string& name : vertex_names(graph)) {
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

Prediction read_prediction(MapReader reader, const Graph& graph) {
  Prediction predicted;
  const std::vector<std::string> tasks = task_names(graph);
  predicted.iteration_time_s = reader.number("iteration_time", kAmount, 0.0);
  predicted.lower_bound_s = reader.number("lower_bound", kAmount, 0.0);
  predicted.throughput_tokens_per_s = reader.number("throughput", kAmount, 0.0);
  for_each_task(reader, "breakdown", tasks, [&](MapReader& map, const std::string& id) {
    predicted.breakdown[id] = read_task(map.map(id, true));
  });
  for_each_task(reader, "memory_peak", tasks, [&](MapReader& map, const std::string& id) {
    predicted.memory_peak_bytes[id] = map.number(id, kAmount);
  });
  reader.finish();
  return predicted;
}

Structure read_structure(MapReader reader) {
  Structure structure;
  if (reader.boolean("ac_share", false)) {
    reader.fault("ac_share", "actor-critic sharing is not supported by this version");
  }
  reader.sequence("cuts", false, [&](const YamlValue& item, const std::string& path) {
    reader.faults().add(item, path, "fusion cuts are not supported by this version");
  });
  MapReader tau = reader.map("tau", false);
  structure.tau_actor = tau.integer("actor", {0, 64}, 0);
  structure.tau_critic = tau.integer("critic", {0, 64}, 0);
  tau.finish();
  reader.finish();
  return structure;
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
                      const Graph& graph,
                      const std::vector<VertexEntry>& entries,
                      MapReader& reader) {
  for (const Violation& violation : find_violations(file.plan, graph, file.inputs)) {
    const auto entry = std::find_if(entries.begin(), entries.end(), [&](const VertexEntry& e) {
      return e.id == violation.vertex;
    });
    if (entry == entries.end()) {
      reader.fault("vertices", violation.message);
    } else {
      reader.faults().add(*entry->item, entry->path, entry->id + ": " + violation.message);
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
  result.plan.structure = read_structure(reader.map("structure", false));
  // Which vertices there are follows from the inputs: ids mean something only when these are right.
  const bool has_graph = faults.empty();
  const Graph graph =
      has_graph ? build_graph(result.inputs.policy, result.plan.structure) : Graph{};
  std::vector<VertexEntry> entries;
  reader.sequence("vertices", true, [&](const YamlValue& item, const std::string& path) {
    entries.push_back(read_vertex(item, path, graph, faults));
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
  check_violations(result, graph, entries, reader);
  faults.throw_if_any();
  return result;
}

PlanFile load_plan_file(const std::filesystem::path& path) {
  return parse_plan_file(read_file(path), path.string());
}

}  // namespace rpeg
