#include <fmt/format.h>
#include <graphviz/gvc.h>

#include <memory>
#include <string>

#include "report/palette.h"
#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/units.h"
#include "rpeg/graph/graph.h"
#include "rpeg/report/plots.h"

namespace rpeg {
namespace {

std::string hex(const report::Colour& colour) {
  const auto byte = [](double share) { return static_cast<int>(255.0 * share + 0.5); };
  return fmt::format(
      "#{:02x}{:02x}{:02x}", byte(colour.red), byte(colour.green), byte(colour.blue));
}

std::string edge_style(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::kData:
      return "color=\"#333333\"";
    case EdgeKind::kWeights:
      return "color=\"#0060b0\", fontcolor=\"#0060b0\", penwidth=2.2";
    case EdgeKind::kState:
      return "color=\"#777777\", fontcolor=\"#777777\", style=dotted";
    case EdgeKind::kOrder:
      return "color=\"#777777\", fontcolor=\"#777777\", style=dashed";
  }
  return "";
}

/// Per vertex: its time, of all stages together.
std::vector<double> vertex_seconds(const Evaluation& evaluation) {
  std::vector<double> seconds(evaluation.plan.vertices.size(), 0.0);
  for (const TimedTask& task : evaluation.priced.tasks.tasks) {
    if (task.vertex >= 0) seconds[static_cast<std::size_t>(task.vertex)] += task.time.total_s;
  }
  return seconds;
}

struct CloseContext {
  void operator()(GVC_t* context) const { gvFreeContext(context); }
};
struct CloseGraph {
  void operator()(Agraph_t* graph) const { agclose(graph); }
};

}  // namespace

std::string graph_dot(const Evaluation& evaluation, const WorkloadConfig& config) {
  const Graph graph = build_graph(config.policy, evaluation.plan.structure);
  std::string dot = fmt::format(
      "digraph rpeg {{\n"
      "  graph [rankdir=LR, fontname=\"Helvetica\", labelloc=t, nodesep=0.35, ranksep=0.7,\n"
      "         label=\"{}: {} per iteration\\nsolid: data   blue: weights   dotted: optimizer "
      "state   dashed: order   δ: iterations between its ends\\n \"];\n"
      "  node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\", fontsize=12];\n"
      "  edge [fontname=\"Helvetica\", fontsize=11];\n",
      to_string(config.policy.algorithm),
      format_seconds(evaluation.metrics.iteration_time_s));
  const std::vector<double> seconds = vertex_seconds(evaluation);
  for (std::size_t v = 0; v < graph.vertices.size(); ++v) {
    const VertexPlan& plan = evaluation.plan.vertices[v];
    dot += fmt::format(
        "  {} [fillcolor=\"{}\", label=\"{}\\ndp {} · pp {} · tp {}, mb {}\\n{}\\n{}\"];\n",
        graph.vertices[v].name,
        hex(report::vertex_colour(v)),
        graph.vertices[v].name,
        plan.parallelism.dp,
        plan.parallelism.pp,
        plan.parallelism.tp,
        plan.micro_batches,
        placement_text(plan.placement),
        format_seconds(seconds[v]));
  }
  for (const Edge& edge : graph.edges) {
    dot += fmt::format("  {} -> {} [{}{}];\n",
                       graph.vertices[index(edge.from)].name,
                       graph.vertices[index(edge.to)].name,
                       edge_style(edge.kind),
                       edge.delta == 0
                           ? std::string()
                           : fmt::format(", label=\"δ={}\", constraint=false", edge.delta));
  }
  return dot + "}\n";
}

std::string render_dot(const std::string& dot) {
  const std::unique_ptr<GVC_t, CloseContext> context(gvContext());
  check(context != nullptr, "Graphviz gives a context");
  const std::unique_ptr<Agraph_t, CloseGraph> graph(agmemread(dot.c_str()));
  check(graph != nullptr, "the generated DOT text is valid");
  check(gvLayout(context.get(), graph.get(), "dot") == 0, "Graphviz lays out the graph");
  char* data = nullptr;
  unsigned int size = 0;
  const int failed = gvRenderData(context.get(), graph.get(), "pdf", &data, &size);
  const std::string pdf = data != nullptr ? std::string(data, size) : std::string();
  if (data != nullptr) gvFreeRenderData(data);
  gvFreeLayout(context.get(), graph.get());
  if (failed != 0 || pdf.empty()) {
    throw Error(ErrorKind::kRuntime,
                "Graphviz cannot render PDF: its cairo plugin is missing (install graphviz)");
  }
  return pdf;
}

std::vector<std::filesystem::path> write_plots(const SearchResult& result,
                                               const WorkloadConfig& config,
                                               const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> paths;
  const auto write = [&](const char* name, const std::string& content) {
    paths.push_back(directory / name);
    write_file_atomic(paths.back(), content);
  };
  const std::string dot = graph_dot(result.best, config);
  write("graph.dot", dot);
  write("graph.pdf", render_dot(dot));
  write("gantt_base.pdf", gantt_pdf(result.greedy, config, "Base plan (greedy)"));
  write("gantt_optimized.pdf", gantt_pdf(result.best, config, "Optimized plan"));
  return paths;
}

}  // namespace rpeg
