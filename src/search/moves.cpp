#include "search/moves.h"

#include <algorithm>
#include <array>
#include <utility>

#include "rpeg/plan/cells.h"

namespace rpeg::search {
namespace {

constexpr std::array<Range Placement::*, 3> kAxes{
    &Placement::racks, &Placement::nodes, &Placement::gpus};

constexpr std::int64_t kOnePairIn = 4;

std::size_t draw_index(std::size_t size, Rng& rng) {
  return static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(size)));
}

int draw_int(int first, int last, Rng& rng) {
  return first + static_cast<int>(rng.below(last - first + 1));
}

/// The vertices that lie on exactly the block of `focus`, `focus` included.
std::vector<std::size_t> group_of(const Plan& plan, std::size_t focus) {
  std::vector<std::size_t> group;
  for (std::size_t v = 0; v < plan.vertices.size(); ++v) {
    if (plan.vertices[v].placement == plan.vertices[focus].placement) group.push_back(v);
  }
  return group;
}

/// All combinations of the staleness candidates; the critic's matter where there is a critic.
std::vector<Structure> all_structures(const SubPlanTable& table) {
  const auto& optimizer = table.config().optimizer;
  const bool has_critic = std::ranges::any_of(
      table.vertices(), [](const Vertex& vertex) { return vertex.model == ModelRole::kCritic; });
  std::vector<Structure> structures;
  for (const std::int64_t actor : optimizer.staleness_actor) {
    if (!has_critic) {
      structures.push_back({actor, 0});
      continue;
    }
    for (const std::int64_t critic : optimizer.staleness_critic) {
      structures.push_back({actor, critic});
    }
  }
  return structures;
}

}  // namespace

Mover::Mover(SubPlanTable& table)
    : table_(table),
      draws_{&Mover::draw_split,
             &Mover::draw_micro_batches,
             &Mover::draw_resize,
             &Mover::draw_shift,
             &Mover::draw_block,
             &Mover::draw_swap,
             &Mover::draw_align,
             &Mover::draw_division,
             &Mover::draw_group_resize},
      structures_(all_structures(table)) {
  if (structures_.size() > 1) draws_.push_back(&Mover::draw_staleness);
}

std::optional<Plan> Mover::draw(const Plan& plan, std::size_t focus, Rng& rng) {
  auto neighbour = draw_one(plan, focus, rng);
  if (neighbour && rng.below(kOnePairIn) == 0) {
    // A second move at once, of any vertex: some changes pay in pairs only.
    neighbour = draw_one(*neighbour, draw_index(plan.vertices.size(), rng), rng);
  }
  if (!neighbour || *neighbour == plan) return std::nullopt;
  const auto& max_gpus = table_.config().hardware.max_gpus;
  if (max_gpus && active_gpu_count(*neighbour) > *max_gpus) return std::nullopt;
  return neighbour;
}

std::optional<Plan> Mover::draw_one(const Plan& plan, std::size_t focus, Rng& rng) {
  return (this->*draws_[draw_index(draws_.size(), rng)])(plan, focus, rng);
}

Plan Mover::admit(Plan plan) const {
  if (std::ranges::find(structures_, plan.structure) == structures_.end()) {
    plan.structure = structures_.front();
  }
  return plan;
}

int Mover::axis_size(std::size_t axis) const {
  const ClusterSpec& cluster = table_.config().hardware;
  return std::array{cluster.racks, cluster.nodes_per_rack, cluster.gpus_per_node}[axis];
}

/// Moves a vertex to a block: with its present split where that is valid there (half of the times),
/// else with the fastest or any split. False when the block has no valid split.
bool Mover::put(Plan& plan, std::size_t vertex, const Placement& block, Rng& rng) {
  const SubPlans& choices = table_.of(vertex, block);
  if (choices.all.empty()) return false;
  VertexPlan& mine = plan.vertices[vertex];
  const std::int64_t wish = rng.below(4);
  if (wish < 2) {
    if (const auto same = table_.find(vertex, block, mine.parallelism, mine.micro_batches)) {
      mine = place(*same, block);
      return true;
    }
  }
  const std::size_t pick = wish < 3 ? choices.fastest : draw_index(choices.all.size(), rng);
  mine = place(choices.all[pick], block);
  return true;
}

std::optional<Plan> Mover::draw_split(const Plan& plan, std::size_t focus, Rng& rng) {
  Plan next = plan;
  const Placement& block = plan.vertices[focus].placement;
  const SubPlans& choices = table_.of(focus, block);
  next.vertices[focus] = place(choices.all[draw_index(choices.all.size(), rng)], block);
  return next;
}

std::optional<Plan> Mover::draw_micro_batches(const Plan& plan, std::size_t focus, Rng& rng) {
  Plan next = plan;
  VertexPlan& mine = next.vertices[focus];
  const std::int64_t m = rng.below(2) == 0 ? mine.micro_batches * 2 : mine.micro_batches / 2;
  const auto choice = table_.find(focus, mine.placement, mine.parallelism, m);
  if (!choice) return std::nullopt;
  mine = place(*choice, mine.placement);
  return next;
}

/// Doubled, halved, or changed by one along one axis, towards either side.
Placement Mover::resized(const Placement& block, Rng& rng) const {
  const std::size_t axis = draw_index(kAxes.size(), rng);
  const int size = axis_size(axis);
  Placement next = block;
  Range& range = next.*kAxes[axis];
  const int old = range.count();
  const int wanted = std::array{2 * old, old / 2, old + 1, old - 1}[draw_index(4, rng)];
  const int count = std::clamp(wanted, 1, size);
  const bool keep_first = rng.below(2) == 0;
  const int first = keep_first ? range.first : range.last - count + 1;
  range.first = std::clamp(first, 0, size - count);
  range.last = range.first + count - 1;
  return next;
}

std::optional<Plan> Mover::draw_resize(const Plan& plan, std::size_t focus, Rng& rng) {
  Plan next = plan;
  if (!put(next, focus, resized(plan.vertices[focus].placement, rng), rng)) return std::nullopt;
  return next;
}

std::optional<Plan> Mover::draw_group_resize(const Plan& plan, std::size_t focus, Rng& rng) {
  Plan next = plan;
  const Placement block = resized(plan.vertices[focus].placement, rng);
  for (const std::size_t vertex : group_of(plan, focus)) {
    if (!put(next, vertex, block, rng)) return std::nullopt;
  }
  return next;
}

std::optional<Plan> Mover::draw_shift(const Plan& plan, std::size_t focus, Rng& rng) {
  const std::size_t axis = draw_index(kAxes.size(), rng);
  Plan next = plan;
  Range& range = next.vertices[focus].placement.*kAxes[axis];
  const int count = range.count();
  range.first = draw_int(0, axis_size(axis) - count, rng);
  range.last = range.first + count - 1;
  return next;
}

std::optional<Plan> Mover::draw_block(const Plan& plan, std::size_t focus, Rng& rng) {
  Placement block;
  for (std::size_t axis = 0; axis < kAxes.size(); ++axis) {
    const int size = axis_size(axis);
    const int a = draw_int(0, size - 1, rng);
    const int b = draw_int(0, size - 1, rng);
    block.*kAxes[axis] = {std::min(a, b), std::max(a, b)};
  }
  Plan next = plan;
  if (!put(next, focus, block, rng)) return std::nullopt;
  return next;
}

std::optional<Plan> Mover::draw_swap(const Plan& plan, std::size_t focus, Rng& rng) {
  const std::size_t other = draw_index(plan.vertices.size(), rng);
  Plan next = plan;
  if (!put(next, focus, plan.vertices[other].placement, rng) ||
      !put(next, other, plan.vertices[focus].placement, rng)) {
    return std::nullopt;
  }
  return next;
}

/// Joins another vertex on its block, half of the times with its split too.
std::optional<Plan> Mover::draw_align(const Plan& plan, std::size_t focus, Rng& rng) {
  const VertexPlan& other = plan.vertices[draw_index(plan.vertices.size(), rng)];
  Plan next = plan;
  if (rng.below(2) == 0) {
    const auto same = table_.find(focus, other.placement, other.parallelism, other.micro_batches);
    if (!same) return std::nullopt;
    next.vertices[focus] = place(*same, other.placement);
    return next;
  }
  if (!put(next, focus, other.placement, rng)) return std::nullopt;
  return next;
}

/// Cuts the focused vertex's block in two: it takes one side, the others on the block take either
/// side or stay.
std::optional<Plan> Mover::draw_division(const Plan& plan, std::size_t focus, Rng& rng) {
  const std::size_t axis = draw_index(kAxes.size(), rng);
  const Placement& block = plan.vertices[focus].placement;
  const Range whole = block.*kAxes[axis];
  if (whole.count() < 2) return std::nullopt;
  const int cut = draw_int(whole.first + 1, whole.last, rng);
  std::array<Placement, 2> sides{block, block};
  sides[0].*kAxes[axis] = {whole.first, cut - 1};
  sides[1].*kAxes[axis] = {cut, whole.last};
  if (rng.below(2) == 0) std::swap(sides[0], sides[1]);
  Plan next = plan;
  for (const std::size_t vertex : group_of(plan, focus)) {
    const std::size_t side = vertex == focus ? 0 : draw_index(3, rng);
    if (side < 2 && !put(next, vertex, sides[side], rng)) return std::nullopt;
  }
  return next;
}

std::optional<Plan> Mover::draw_staleness(const Plan& plan, std::size_t, Rng& rng) {
  Plan next = plan;
  next.structure = structures_[draw_index(structures_.size(), rng)];
  return next;
}

}  // namespace rpeg::search
