#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "rpeg/base/error.h"
#include "rpeg/base/rng.h"
#include "rpeg/sim/simulator.h"
#include "sim/cycle_ratio.h"
#include "unit/sim/reference_scheduler.h"

#if __has_include(<boost/graph/howard_cycle_ratio.hpp>)
#define RPEG_TEST_HAS_BOOST_GRAPH 1
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wfloat-conversion"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/howard_cycle_ratio.hpp>
#pragma GCC diagnostic pop
#else
#define RPEG_TEST_HAS_BOOST_GRAPH 0
#endif

namespace rpeg {
namespace {

TEST(MaximumCycleRatio, IsZeroWithoutCycles) {
  EXPECT_EQ(maximum_cycle_ratio({3.0, 4.0}, {{0, 1, 1}}, nullptr), 0.0);
}

TEST(MaximumCycleRatio, DividesDurationsByDistances) {
  // 0 -> 1 -> 0 carries 3 + 4 over 2 iterations, the loop at 1 carries 4 over 3.
  std::vector<std::int32_t> cycle;
  EXPECT_DOUBLE_EQ(maximum_cycle_ratio({3.0, 4.0}, {{0, 1, 0}, {1, 0, 2}, {1, 1, 3}}, &cycle), 3.5);
  std::ranges::sort(cycle);
  EXPECT_EQ(cycle, (std::vector<std::int32_t>{0, 1}));
}

TEST(MaximumCycleRatio, AllowsNegativeDistancesOnPositiveCycles) {
  EXPECT_DOUBLE_EQ(maximum_cycle_ratio({3.0, 4.0}, {{0, 1, -1}, {1, 0, 2}}, nullptr), 7.0);
}

TEST(MaximumCycleRatio, RefusesACycleWithoutDistance) {
  EXPECT_THROW(maximum_cycle_ratio({3.0, 4.0}, {{0, 1, 0}, {1, 0, 0}}, nullptr), Error);
  EXPECT_THROW(maximum_cycle_ratio({0.0, 0.0}, {{0, 1, -1}, {1, 0, 1}}, nullptr), Error);
}

struct RandomGraph {
  std::vector<double> duration_s;
  std::vector<TaskEdge> edges;
};

/// A ring (so that there is a cycle), and random chords; an edge of δ = 0 only goes upwards.
RandomGraph random_graph(Rng& rng) {
  RandomGraph graph;
  const std::int64_t nodes = 2 + rng.below(12);
  for (std::int64_t i = 0; i < nodes; ++i) {
    graph.duration_s.push_back(0.001 * static_cast<double>(rng.below(10000)));
  }
  const std::int64_t chords = rng.below(3 * nodes);
  for (std::int64_t i = 0; i < nodes + chords; ++i) {
    const std::int64_t from = i < nodes ? i : rng.below(nodes);
    const std::int64_t to = i < nodes ? (i + 1) % nodes : rng.below(nodes);
    graph.edges.push_back({static_cast<std::int32_t>(from),
                           static_cast<std::int32_t>(to),
                           (from < to ? 0 : 1) + rng.below(3)});
  }
  return graph;
}

TEST(MaximumCycleRatio, ReturnsACycleOfThatRatio) {
  Rng rng(3);
  for (int i = 0; i < 300; ++i) {
    const RandomGraph graph = random_graph(rng);
    std::vector<std::int32_t> cycle;
    const double ratio = maximum_cycle_ratio(graph.duration_s, graph.edges, &cycle);
    if (ratio == 0.0) continue;
    double duration = 0.0;
    std::int64_t delta = 0;
    for (std::size_t j = 0; j < cycle.size(); ++j) {
      const std::int32_t from = cycle[j];
      const std::int32_t to = cycle[(j + 1) % cycle.size()];
      std::int64_t least = -1;
      for (const TaskEdge& edge : graph.edges) {
        if (edge.from != from || edge.to != to) continue;
        if (least < 0 || edge.delta < least) least = edge.delta;
      }
      ASSERT_GE(least, 0) << "no edge " << from << " -> " << to;
      delta += least;
      duration += graph.duration_s[static_cast<std::size_t>(from)];
    }
    ASSERT_NEAR(duration / static_cast<double>(delta), ratio, 1e-9);
  }
}

TEST(MaximumCycleRatio, AgreesWithParametricSearch) {
  // Also with several components, negative distances and deadlocks.
  Rng rng(23);
  sim::CycleRatioSolver solver;
  int deadlocks = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::int64_t nodes = 1 + rng.below(14);
    std::vector<std::int64_t> duration_ns;
    for (std::int64_t node = 0; node < nodes; ++node) {
      duration_ns.push_back(1 + rng.below(i % 2 == 0 ? 8 : 1000000000));
    }
    std::vector<TaskEdge> edges;
    const std::int64_t count = rng.below(3 * nodes + 1);
    for (std::int64_t edge = 0; edge < count; ++edge) {
      const auto from = static_cast<std::int32_t>(rng.below(nodes));
      const auto to = static_cast<std::int32_t>(rng.below(nodes));
      edges.push_back({from, to, from < to ? rng.below(4) - 1 : 1 + rng.below(4)});
    }
    const auto expected = reference::find_maximum_cycle_ratio(duration_ns, edges);
    const sim::CycleRatio* found = solver.solve(duration_ns, edges);
    ASSERT_EQ(found != nullptr, expected.has_value()) << "graph " << i;
    if (found == nullptr) {
      ++deadlocks;
      continue;
    }
    ASSERT_EQ(found->duration_ns * expected->delta, expected->duration_ns * found->delta)
        << "graph " << i;
    ASSERT_FALSE(solver.exceeds(duration_ns, edges, {found->duration_ns, found->delta, {}}));
    if (found->duration_ns > 0) {
      ASSERT_TRUE(solver.exceeds(duration_ns, edges, {found->duration_ns - 1, found->delta, {}}));
    }
  }
  EXPECT_GT(deadlocks, 100);
}

#if RPEG_TEST_HAS_BOOST_GRAPH
using BoostGraph = boost::adjacency_list<
    boost::vecS,
    boost::vecS,
    boost::directedS,
    boost::property<boost::vertex_index_t, int>,
    boost::property<boost::edge_weight_t, double, boost::property<boost::edge_weight2_t, double>>>;

/// Boost's own epsilon is 0.005; its sign is Boost's convention.
struct PreciseTraits : boost::mcr_float<double> {
  static double epsilon() { return -1e-10; }
};

TEST(MaximumCycleRatio, AgreesWithBoostGraph) {
  Rng rng(5);
  for (int i = 0; i < 600; ++i) {
    const RandomGraph graph = random_graph(rng);
    BoostGraph other(graph.duration_s.size());
    for (const TaskEdge& edge : graph.edges) {
      boost::add_edge(static_cast<std::size_t>(edge.from),
                      static_cast<std::size_t>(edge.to),
                      {graph.duration_s[static_cast<std::size_t>(edge.from)],
                       {static_cast<double>(edge.delta)}},
                      other);
    }
    const double expected = boost::maximum_cycle_ratio(other,
                                                       get(boost::vertex_index, other),
                                                       get(boost::edge_weight, other),
                                                       get(boost::edge_weight2, other),
                                                       nullptr,
                                                       PreciseTraits());
    ASSERT_NEAR(maximum_cycle_ratio(graph.duration_s, graph.edges, nullptr), expected, 1e-8)
        << "graph " << i;
  }
}
#else
TEST(MaximumCycleRatio, AgreesWithBoostGraph) { GTEST_SKIP() << "Boost.Graph is not installed"; }
#endif

}  // namespace
}  // namespace rpeg
