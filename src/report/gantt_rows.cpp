#include "report/gantt_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rpeg/plan/cells.h"

namespace rpeg::report {
namespace {

/// Bit v: vertex v holds the atom.
std::vector<std::uint32_t> users_of_atoms(const Evaluation& evaluation) {
  const TaskGraph& graph = evaluation.priced.tasks;
  std::vector<std::uint32_t> users(static_cast<std::size_t>(graph.atom_count), 0U);
  for (const TimedTask& task : graph.tasks) {
    if (task.vertex < 0) continue;
    for (const std::int32_t atom : task.atoms) {
      users[static_cast<std::size_t>(atom)] |= 1U << task.vertex;
    }
  }
  return users;
}

/// Joins two boxes that differ along one axis only and touch there.
bool join(Placement& a, const Placement& b) {
  constexpr std::array<Range Placement::*, 3> kAxes{
      &Placement::racks, &Placement::nodes, &Placement::gpus};
  Range Placement::* differing = nullptr;
  for (const auto axis : kAxes) {
    if (a.*axis == b.*axis) continue;
    if (differing != nullptr) return false;
    differing = axis;
  }
  if (differing == nullptr || (a.*differing).last + 1 != (b.*differing).first) return false;
  (a.*differing).last = (b.*differing).last;
  return true;
}

/// "r0 n[0-1] g[0-3] + …" of ascending boxes, as few as possible.
std::string boxes_text(std::vector<Placement> boxes) {
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    for (std::size_t j = i + 1; j < boxes.size(); ++j) {
      if (!join(boxes[i], boxes[j])) continue;
      boxes.erase(boxes.begin() + static_cast<std::ptrdiff_t>(j));
      j = i;  // the larger box may now touch one that it did not touch before
    }
  }
  std::string text;
  for (const Placement& box : boxes) text += (text.empty() ? "" : " + ") + placement_text(box);
  return text;
}

/// The rows, and the row of every set of vertices.
std::map<std::uint32_t, std::size_t> make_rows(const Evaluation& evaluation, Gantt& gantt) {
  std::vector<Placement> placements;
  for (std::size_t v = 0; v < evaluation.plan.vertices.size(); ++v) {
    placements.push_back(evaluation.plan.vertices[v].placement);
  }
  std::map<std::uint32_t, std::size_t> row_of;
  std::vector<std::vector<Placement>> boxes;
  for (const PlacementCell& cell : cut_into_cells(placements)) {
    const auto [place, is_new] = row_of.try_emplace(cell.users, gantt.rows.size());
    if (is_new) {
      gantt.rows.emplace_back();
      boxes.emplace_back();
    }
    gantt.rows[place->second].gpus += cell.box.gpu_count();
    boxes[place->second].push_back(cell.box);
  }
  for (std::size_t row = 0; row < boxes.size(); ++row) {
    gantt.rows[row].label = boxes_text(boxes[row]);
  }
  return row_of;
}

}  // namespace

Gantt lay_out_gantt(const Evaluation& evaluation, int periods) {
  const TaskGraph& graph = evaluation.priced.tasks;
  const SteadyState& steady = evaluation.steady;
  Gantt gantt;
  gantt.end_s = periods * steady.period_s;
  const auto row_of = make_rows(evaluation, gantt);
  const std::vector<std::uint32_t> users = users_of_atoms(evaluation);
  for (std::size_t id = 0; id < graph.tasks.size(); ++id) {
    std::vector<std::size_t> rows;
    for (const std::int32_t atom : graph.tasks[id].atoms) {
      const auto found = row_of.find(users[static_cast<std::size_t>(atom)]);
      if (found != row_of.end()) rows.push_back(found->second);
    }
    if (rows.empty()) {
      if (gantt.rows.empty() || gantt.rows.back().gpus > 0)
        gantt.rows.push_back({"beside compute", 0});
      rows.push_back(gantt.rows.size() - 1);
    }
    std::ranges::sort(rows);
    const auto repeated = std::ranges::unique(rows);
    rows.erase(repeated.begin(), repeated.end());
    const double seconds = graph.tasks[id].time.total_s;
    // The first instance that has not ended at 0.
    const double first = std::ceil(-(steady.start_s[id] + seconds) / steady.period_s);
    for (double k = first; steady.start_s[id] + k * steady.period_s < gantt.end_s; k += 1.0) {
      const double start = steady.start_s[id] + k * steady.period_s;
      for (const std::size_t row : rows) gantt.bars.push_back({row, id, start, start + seconds});
    }
  }
  return gantt;
}

double tick_distance(double length, int most) {
  const double least = length / most;
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-12)) return factor * power;
  }
  return 10.0 * power;
}

}  // namespace rpeg::report
