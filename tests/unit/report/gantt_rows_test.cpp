#include "report/gantt_rows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "rpeg/search/baseline.h"
#include "support/planning.h"

namespace rpeg::report {
namespace {

TEST(TickDistance, IsOneTwoOrFiveTimesAPowerOfTen) {
  EXPECT_DOUBLE_EQ(tick_distance(10.0, 10), 1.0);
  EXPECT_DOUBLE_EQ(tick_distance(11.0, 10), 2.0);
  EXPECT_DOUBLE_EQ(tick_distance(0.0034, 10), 0.0005);
  EXPECT_DOUBLE_EQ(tick_distance(60.0, 10), 10.0);
}

/// Vertices 0 and 1 on disjoint blocks; 1 runs an iteration behind.
Evaluation two_blocks() {
  Evaluation evaluation;
  evaluation.plan.vertices = {{{2, 1, 1}, 1, {{0, 0}, {0, 0}, {0, 1}}},
                              {{4, 1, 1}, 1, {{0, 0}, {1, 1}, {0, 3}}}};
  TaskGraph& graph = evaluation.priced.tasks;
  graph.tasks.resize(3);
  graph.tasks[0].vertex = 0;
  graph.tasks[1].vertex = 1;
  graph.tasks[0].time.total_s = 4.0;
  graph.tasks[0].atoms = {0};
  graph.tasks[1].time.total_s = 3.0;
  graph.tasks[1].atoms = {1};
  graph.tasks[2].time.total_s = 1.0;  // a transfer beside compute
  graph.atom_count = 2;
  evaluation.steady.period_s = 4.0;
  evaluation.steady.start_s = {0.0, 6.0, 5.0};
  return evaluation;
}

TEST(LayOutGantt, DrawsEveryInstanceOfTheInterval) {
  const Gantt gantt = lay_out_gantt(two_blocks(), 2);
  ASSERT_EQ(gantt.rows.size(), 3U);
  EXPECT_EQ(gantt.rows[0].label, "r0 n[0-0] g[0-1]");
  EXPECT_EQ(gantt.rows[0].gpus, 2);
  EXPECT_EQ(gantt.rows[1].label, "r0 n[1-1] g[0-3]");
  EXPECT_EQ(gantt.rows[2].label, "beside compute");
  EXPECT_DOUBLE_EQ(gantt.end_s, 8.0);
  std::vector<double> starts;
  for (const GanttBar& bar : gantt.bars) {
    if (bar.task != 1) continue;
    EXPECT_EQ(bar.row, 1U);
    EXPECT_DOUBLE_EQ(bar.end_s - bar.start_s, 3.0);
    if (bar.end_s > 0.0) starts.push_back(bar.start_s);
  }
  // 6 + 4k: instances -2, -1 and 0 are on in [0, 8): 6 - 8, 6 - 4, 6.
  EXPECT_EQ(starts, (std::vector<double>{-2.0, 2.0, 6.0}));
}

TEST(LayOutGantt, JoinsBoxesThatTouch) {
  // Vertex 1 on half of the GPUs of node 1 cuts nothing of vertex 0's nodes 2 and 3.
  Evaluation evaluation = two_blocks();
  evaluation.plan.vertices[0].placement = {{0, 0}, {2, 3}, {0, 3}};
  evaluation.plan.vertices[1].placement = {{0, 0}, {1, 1}, {0, 1}};
  const Gantt gantt = lay_out_gantt(evaluation, 1);
  const auto row = std::ranges::find(gantt.rows, 8, &GanttRow::gpus);
  ASSERT_NE(row, gantt.rows.end());
  EXPECT_EQ(row->label, "r0 n[2-3] g[0-3]");
}

}  // namespace
}  // namespace rpeg::report
