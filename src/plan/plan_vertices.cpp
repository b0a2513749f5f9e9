#include "plan/plan_vertices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "plan/plan_stages.h"
#include "rpeg/base/text.h"

namespace rpeg {
namespace {

constexpr double kMostGpus = 1e6;
constexpr double kMostMicroBatches = 1 << 20;  // of one call: the search counts no further

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

/// The same for numbers, which must agree to six digits.
void check_number(MapReader& reader, const std::string& key, double found, double expected) {
  if (std::abs(found - expected) > 1e-6 * std::max(1.0, std::abs(expected))) {
    reader.fault(key, fmt::format("expected {:.9g} for this stage, found {:.9g}", expected, found));
  }
}

/// `stage`, `share` and `tokens` of a stage, for people as well.
void check_stage(MapReader& reader, std::int32_t stage, const StageSpan& span) {
  const std::int64_t found = reader.integer("stage", {1, 1e6}, stage);
  if (found != stage) {
    reader.fault("stage", fmt::format("expected {} for this stage, found {}", stage, found));
  }
  check_number(reader, "share", reader.number("share", {0, 1}, span.share), span.share);
  std::vector<double> tokens;
  reader.sequence("tokens", false, [&](const YamlValue& item, const std::string& path) {
    tokens.push_back(yaml_number(item, path, reader.faults(), {0, 1e8}));
  });
  if (tokens.empty()) return;
  if (tokens.size() != 2) {
    reader.fault("tokens", fmt::format("expected 2 numbers, found {}", tokens.size()));
    return;
  }
  check_number(reader, "tokens", tokens[0], span.from_tokens);
  check_number(reader, "tokens", tokens[1], span.to_tokens);
}

/// The first decision in which two stages differ; "" when they agree.
std::string stage_difference(const VertexPlan& a, const VertexPlan& b) {
  const auto degrees = [](const Parallelism& p) {
    return fmt::format("[{}, {}, {}]", p.dp, p.pp, p.tp);
  };
  if (a.parallelism != b.parallelism) {
    return fmt::format(
        "parallelism is {} here and {}", degrees(b.parallelism), degrees(a.parallelism));
  }
  if (a.micro_batches != b.micro_batches) {
    return fmt::format("micro_batches is {} here and {}", b.micro_batches, a.micro_batches);
  }
  if (a.placement != b.placement) {
    return fmt::format(
        "placement is {} here and {}", placement_text(b.placement), placement_text(a.placement));
  }
  return "";
}

}  // namespace

VertexEntry read_vertex(const YamlValue& item,
                        const std::string& path,
                        const FusedGraph& graph,
                        const Structure& structure,
                        const WorkloadSpec& workload,
                        Faults& faults) {
  MapReader reader(item, path, faults);
  VertexEntry entry{&item, path, reader.string("id"), -1, {}};
  const VertexId id = find_vertex(graph.graph, entry.id);
  if (id != VertexId{-1}) {
    const Vertex& vertex = graph.graph.vertices[index(id)];
    entry.base = graph.base[index(id)];
    check_label(reader, "op", to_string(vertex.op));
    check_label(reader, "model", to_string(vertex.model));
    if (vertex.stage > 0) {
      check_stage(reader, vertex.stage, stage_span(structure, vertex.stage, workload));
    }
  } else {
    for (const char* key : {"op", "model", "stage", "share", "tokens"}) reader.ignore(key);
  }
  entry.plan.parallelism = read_parallelism(reader);
  entry.plan.micro_batches = reader.integer("micro_batches", {1, kMostMicroBatches}, 1);
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

std::vector<VertexPlan> match_vertices(const std::vector<VertexEntry>& entries,
                                       const FusedGraph& graph,
                                       MapReader& reader) {
  const std::vector<std::string> names = vertex_names(graph.graph);
  Faults& faults = reader.faults();
  std::vector<VertexPlan> plans(
      graph.base.empty() ? 0 : static_cast<std::size_t>(graph.base.back()) + 1);
  std::map<std::string, const VertexEntry*> seen;
  std::map<std::int32_t, const VertexEntry*> first;  // by vertex of the uncut graph
  for (const VertexEntry& entry : entries) {
    if (entry.base < 0) {
      faults.add(*entry.item, entry.path, unknown_id("vertex", entry.id, names));
      continue;
    }
    if (!seen.emplace(entry.id, &entry).second) {
      faults.add(*entry.item, entry.path, fmt::format("`{}` appears twice", entry.id));
      continue;
    }
    const auto [at, is_first] = first.emplace(entry.base, &entry);
    if (is_first) {
      plans[static_cast<std::size_t>(entry.base)] = entry.plan;
      continue;
    }
    const std::string difference = stage_difference(at->second->plan, entry.plan);
    if (!difference.empty()) {
      faults.add(*entry.item,
                 entry.path,
                 fmt::format("{}: all stages of a vertex share one plan, but its {} in {}",
                             entry.id,
                             difference,
                             at->second->id));
    }
  }
  for (const std::string& name : names) {
    if (!seen.contains(name)) {
      reader.fault("vertices", fmt::format("no entry for the vertex `{}`", name));
    }
  }
  return plans;
}

}  // namespace rpeg
