#include "rpeg/plan/cells.h"

#include <algorithm>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// Where a range of some placement begins or has ended, ascending, along one axis.
std::vector<int> cuts(const std::vector<Placement>& placements, Range Placement::* axis) {
  std::vector<int> points;
  points.reserve(2 * placements.size());
  for (const Placement& placement : placements) {
    points.push_back((placement.*axis).first);
    points.push_back((placement.*axis).last + 1);
  }
  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
  return points;
}

/// Bit i: placement i covers `at` along one axis.
std::uint32_t covering(const std::vector<Placement>& placements, Range Placement::* axis, int at) {
  std::uint32_t users = 0;
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const Range& range = placements[i].*axis;
    if (range.first <= at && at <= range.last) users |= 1U << i;
  }
  return users;
}

}  // namespace

std::vector<PlacementCell> cut_into_cells(const std::vector<Placement>& placements) {
  check(placements.size() <= 32, "plan: more than 32 placements");
  const std::vector<int> racks = cuts(placements, &Placement::racks);
  const std::vector<int> nodes = cuts(placements, &Placement::nodes);
  const std::vector<int> gpus = cuts(placements, &Placement::gpus);
  std::vector<PlacementCell> cells;
  for (std::size_t r = 0; r + 1 < racks.size(); ++r) {
    const std::uint32_t in_rack = covering(placements, &Placement::racks, racks[r]);
    for (std::size_t n = 0; in_rack != 0 && n + 1 < nodes.size(); ++n) {
      const std::uint32_t in_node = in_rack & covering(placements, &Placement::nodes, nodes[n]);
      for (std::size_t g = 0; in_node != 0 && g + 1 < gpus.size(); ++g) {
        const std::uint32_t users = in_node & covering(placements, &Placement::gpus, gpus[g]);
        if (users == 0) continue;
        cells.push_back({{{racks[r], racks[r + 1] - 1},
                          {nodes[n], nodes[n + 1] - 1},
                          {gpus[g], gpus[g + 1] - 1}},
                         users});
      }
    }
  }
  return cells;
}

std::int64_t active_gpu_count(const Plan& plan) {
  std::vector<Placement> placements;
  placements.reserve(plan.vertices.size());
  for (const VertexPlan& vertex : plan.vertices) placements.push_back(vertex.placement);
  std::int64_t gpus = 0;
  for (const PlacementCell& cell : cut_into_cells(placements)) gpus += cell.box.gpu_count();
  return gpus;
}

}  // namespace rpeg
