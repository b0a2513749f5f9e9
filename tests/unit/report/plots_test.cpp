#include "rpeg/report/plots.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "rpeg/base/file.h"
#include "rpeg/search/baseline.h"
#include "support/planning.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

Evaluation concurrent(const WorkloadConfig& config) {
  return evaluate_plan(
      concurrent_plan(config, test::small_hardware()), config, test::small_hardware());
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(GraphDot, StylesEdgesByKindAndLabelsDistances) {
  WorkloadConfig config = test::small_ppo(1, 4, 2);
  const std::string dot = graph_dot(concurrent(config), config);
  EXPECT_TRUE(has(dot, "g_pi -> i_R [color=\"#333333\"];"));
  EXPECT_TRUE(has(dot, "t_pi -> g_pi [color=\"#0060b0\""));
  EXPECT_TRUE(has(dot, "label=\"δ=1\""));
  EXPECT_TRUE(has(dot, "dp "));
}

TEST(RenderDot, MakesAPdf) {
  const std::string pdf = render_dot("digraph g { a -> b; }");
  EXPECT_TRUE(pdf.starts_with("%PDF"));
}

TEST(GanttPdf, MakesAPdf) {
  const WorkloadConfig config = test::small_ppo(1, 4, 2);
  EXPECT_TRUE(gantt_pdf(concurrent(config), config, "Plan").starts_with("%PDF"));
}

TEST(WritePlots, WritesTheFourFiles) {
  const WorkloadConfig config = test::small_ppo(1, 4, 2);
  SearchResult result;
  result.greedy = concurrent(config);
  result.best = result.greedy;
  const auto directory = test::test_directory();
  std::filesystem::remove_all(directory);
  for (const auto& path : write_plots(result, config, directory)) {
    EXPECT_FALSE(read_file(path).empty()) << path;
  }
  for (const char* name : {"graph.dot", "graph.pdf", "gantt_base.pdf", "gantt_optimized.pdf"}) {
    EXPECT_TRUE(std::filesystem::exists(directory / name)) << name;
  }
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace rpeg
