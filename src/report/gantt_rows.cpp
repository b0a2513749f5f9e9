#include "report/gantt_rows.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "rpeg/plan/cells.h"

namespace rpeg::report {
namespace {

/// Bit v: vertex v holds the atom.
std::vector<std::uint32_t> users_of_atoms(const Evaluation& evaluation) {
  const TaskGraph& graph = evaluation.priced.tasks;
  std::vector<std::uint32_t> users(static_cast<std::size_t>(graph.atom_count), 0U);
  for (std::size_t v = 0; v < evaluation.plan.vertices.size(); ++v) {
    for (const std::int32_t atom : graph.tasks[v].atoms) {
      users[static_cast<std::size_t>(atom)] |= 1U << v;
    }
  }
  return users;
}

/// The rows, and the row of every set of vertices.
std::map<std::uint32_t, std::size_t> make_rows(const Evaluation& evaluation, Gantt& gantt) {
  std::vector<Placement> placements;
  for (std::size_t v = 0; v < evaluation.plan.vertices.size(); ++v) {
    placements.push_back(evaluation.plan.vertices[v].placement);
  }
  std::map<std::uint32_t, std::size_t> row_of;
  for (const PlacementCell& cell : cut_into_cells(placements)) {
    const auto [place, is_new] = row_of.try_emplace(cell.users, gantt.rows.size());
    if (is_new) gantt.rows.emplace_back();
    GanttRow& row = gantt.rows[place->second];
    row.label += (row.label.empty() ? "" : " + ") + placement_text(cell.box);
    row.gpus += cell.box.gpu_count();
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
      if (gantt.rows.empty() || gantt.rows.back().gpus > 0) gantt.rows.push_back({"no GPU", 0});
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
