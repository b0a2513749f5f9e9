#pragma once

#include <string>
#include <vector>

#include "rpeg/graph/graph.h"
#include "rpeg/plan/plan.h"
#include "rpeg/yaml/reader.h"

namespace rpeg {

/// One item of `vertices` of plan.yaml: the plan of a vertex, or of one stage of it.
struct VertexEntry {
  const YamlValue* item = nullptr;
  std::string path;
  std::string id;
  std::int32_t base = -1;  ///< the vertex of the uncut graph; -1: none has this id
  VertexPlan plan;
};

/// Reads the item; its id and labels are compared with `graph`, which may be empty when the inputs
/// are faulty.
VertexEntry read_vertex(const YamlValue& item,
                        const std::string& path,
                        const FusedGraph& graph,
                        const Structure& structure,
                        const WorkloadSpec& workload,
                        Faults& faults);

/// Puts the entries into the order of the uncut graph. Every vertex, and every stage of a cut one,
/// must appear exactly once; stages of one vertex must agree.
std::vector<VertexPlan> match_vertices(const std::vector<VertexEntry>& entries,
                                       const FusedGraph& graph,
                                       MapReader& reader);

/// "`x` is no KIND of this job; there are …; did you mean …?"
std::string unknown_id(const std::string& kind,
                       const std::string& id,
                       const std::vector<std::string>& names);

std::vector<std::string> vertex_names(const Graph& graph);

}  // namespace rpeg
