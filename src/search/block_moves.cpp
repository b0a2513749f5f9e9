#include <algorithm>
#include <array>
#include <utility>

#include "search/axes.h"
#include "search/moves.h"

namespace rpeg::search {
namespace {

/// The vertices that lie on exactly the block of `focus`, `focus` included.
void find_group(const Plan& plan, std::size_t focus, std::vector<std::size_t>& group) {
  group.clear();
  for (std::size_t v = 0; v < plan.vertices.size(); ++v) {
    if (plan.vertices[v].placement == plan.vertices[focus].placement) group.push_back(v);
  }
}

bool is_inside(const Placement& inner, const Placement& outer) {
  return std::ranges::all_of(kAxes, [&](Range Placement::* axis) {
    return (outer.*axis).first <= (inner.*axis).first && (inner.*axis).last <= (outer.*axis).last;
  });
}

}  // namespace

/// Doubled, halved, or changed by one along one axis, towards either side.
Placement Mover::resized(const Placement& block, Rng& rng) const {
  const std::size_t axis = draw_axis(rng);
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

bool Mover::draw_resize(Plan& plan, std::size_t focus, Rng& rng) {
  return put(plan, focus, resized(plan.vertices[focus].placement, rng), rng);
}

bool Mover::draw_group_resize(Plan& plan, std::size_t focus, Rng& rng) {
  const Placement block = resized(plan.vertices[focus].placement, rng);
  find_group(plan, focus, group_);
  for (const std::size_t vertex : group_) {
    if (!put(plan, vertex, block, rng)) return false;
  }
  return true;
}

bool Mover::draw_shift(Plan& plan, std::size_t focus, Rng& rng) {
  const std::size_t axis = draw_axis(rng);
  Placement block = plan.vertices[focus].placement;
  Range& range = block.*kAxes[axis];
  const int count = range.count();
  range.first = draw_int(0, axis_size(axis) - count, rng);
  range.last = range.first + count - 1;
  const VertexPlan& mine = plan.vertices[focus];
  return put_same(plan, focus, block, mine);
}

bool Mover::draw_block(Plan& plan, std::size_t focus, Rng& rng) {
  Placement block;
  for (std::size_t axis = 0; axis < kAxes.size(); ++axis) {
    const int size = axis_size(axis);
    const int a = draw_int(0, size - 1, rng);
    const int b = draw_int(0, size - 1, rng);
    block.*kAxes[axis] = {std::min(a, b), std::max(a, b)};
  }
  return put(plan, focus, block, rng);
}

bool Mover::draw_swap(Plan& plan, std::size_t focus, Rng& rng) {
  const std::size_t other = draw_index(plan.vertices.size(), rng);
  const Placement mine = plan.vertices[focus].placement;
  const Placement theirs = plan.vertices[other].placement;
  return put(plan, focus, theirs, rng) && put(plan, other, mine, rng);
}

/// Joins another vertex on its block, half of the times with its split too.
bool Mover::draw_align(Plan& plan, std::size_t focus, Rng& rng) {
  const VertexPlan other = plan.vertices[draw_index(plan.vertices.size(), rng)];
  if (rng.below(2) == 0) return put_same(plan, focus, other.placement, other);
  return put(plan, focus, other.placement, rng);
}

/// Cuts the focused vertex's block in two: it takes one side, the others on the block take either
/// side or stay.
bool Mover::draw_division(Plan& plan, std::size_t focus, Rng& rng) {
  const std::size_t axis = draw_axis(rng);
  const Placement block = plan.vertices[focus].placement;
  const Range whole = block.*kAxes[axis];
  if (whole.count() < 2) return false;
  const int cut = draw_int(whole.first + 1, whole.last, rng);
  std::array<Placement, 2> sides{block, block};
  sides[0].*kAxes[axis] = {whole.first, cut - 1};
  sides[1].*kAxes[axis] = {cut, whole.last};
  if (rng.below(2) == 0) std::swap(sides[0], sides[1]);
  find_group(plan, focus, group_);
  for (const std::size_t vertex : group_) {
    const std::size_t side = vertex == focus ? 0 : draw_index(3, rng);
    if (side < 2 && !put(plan, vertex, sides[side], rng)) return false;
  }
  return true;
}

/// Cuts the focused vertex's block into equal parts and deals the other vertices that lie inside it
/// to them in turn; the focused one keeps the whole. So inference vertices come side by side inside
/// the block of a training vertex, each with one copy of its weights on few GPUs.
bool Mover::draw_deal(Plan& plan, std::size_t focus, Rng& rng) {
  Range Placement::* const axis = kAxes[draw_axis(rng)];
  const Placement block = plan.vertices[focus].placement;
  const Range whole = block.*axis;
  if (whole.count() < 2) return false;
  const int parts = draw_int(2, std::min(4, whole.count()), rng);
  int turn = draw_int(0, parts - 1, rng);
  bool moved = false;
  for (std::size_t v = 0; v < plan.vertices.size(); ++v) {
    if (v == focus || !is_inside(plan.vertices[v].placement, block)) continue;
    if (rng.below(4) == 0) continue;
    Placement part = block;
    (part.*axis).first = whole.first + whole.count() * turn / parts;
    (part.*axis).last = whole.first + whole.count() * (turn + 1) / parts - 1;
    turn = (turn + 1) % parts;
    if (!put(plan, v, part, rng)) return false;
    moved = true;
  }
  return moved;
}

/// Moves the border between the focused block and its neighbours along one axis: ranges that begin
/// or end there follow, so that what was divided without a gap stays so.
bool Mover::draw_border(Plan& plan, std::size_t focus, Rng& rng) {
  const std::size_t axis = draw_axis(rng);
  const Range mine = plan.vertices[focus].placement.*kAxes[axis];
  const int size = axis_size(axis);
  const int border = rng.below(2) == 0 ? mine.first : mine.last + 1;
  if (border == 0 || border == size) return false;
  const int reach = std::max(1, mine.count() / 2);
  const int step = (rng.below(2) == 0 ? 1 : -1) * (rng.below(2) == 0 ? 1 : draw_int(1, reach, rng));
  const int moved = std::clamp(border + step, 1, size - 1);
  for (std::size_t v = 0; v < plan.vertices.size(); ++v) {
    Placement block = plan.vertices[v].placement;
    Range& range = block.*kAxes[axis];
    if (range.first != border && range.last + 1 != border) continue;
    if (range.first == border) range.first = moved;
    if (range.last + 1 == border) range.last = moved - 1;
    if (range.first > range.last || !put(plan, v, block, rng)) return false;
  }
  return true;
}

/// Widens the focused block to whole nodes, or to whole racks, and moves it to a multiple of its
/// size: aligned blocks meet fewer tiers and share more GPUs with others.
bool Mover::draw_snap(Plan& plan, std::size_t focus, Rng& rng) {
  Placement block = plan.vertices[focus].placement;
  block.gpus = {0, axis_size(2) - 1};
  if (rng.below(3) == 0) {
    block.nodes = {0, axis_size(1) - 1};
  } else {
    const int count = block.nodes.count();
    const int first = block.nodes.first / count * count;
    block.nodes.first = std::min(first, axis_size(1) - count);
    block.nodes.last = block.nodes.first + count - 1;
  }
  return put(plan, focus, block, rng);
}

bool Mover::draw_pools(const Plan& plan, Rng& rng, Plan& next) {
  if (axes_.empty()) return false;
  next = plan;
  if (rng.below(2) == 0) draw_structure(next, rng);
  pools_.assign(1, usable_block(table_.config().hardware));
  const std::int64_t cuts = 1 + rng.below(3);
  for (std::int64_t i = 0; i < cuts; ++i) {
    const std::size_t pool = draw_index(pools_.size(), rng);
    Range Placement::* const axis = kAxes[draw_axis(rng)];
    const Range whole = pools_[pool].*axis;
    if (whole.count() < 2) continue;
    const int cut = draw_int(whole.first + 1, whole.last, rng);
    pools_.push_back(pools_[pool]);
    (pools_[pool].*axis).last = cut - 1;
    (pools_.back().*axis).first = cut;
  }
  for (std::size_t v = 0; v < next.vertices.size(); ++v) {
    if (!put(next, v, pools_[draw_index(pools_.size(), rng)], rng)) return false;
  }
  return suits_chunks(space_, next);
}

/// Doubles or halves all blocks along the nodes or racks: a plan that is good on a part of a large
/// cluster is a good guess for more of it.
bool Mover::draw_scale(Plan& plan, std::size_t, Rng& rng) {
  const std::size_t axis = axis_size(0) > 1 && (axis_size(1) == 1 || rng.below(2) == 0) ? 0 : 1;
  const int size = axis_size(axis);
  const bool doubles = rng.below(2) == 0;
  for (std::size_t v = 0; v < plan.vertices.size(); ++v) {
    Placement block = plan.vertices[v].placement;
    Range& range = block.*kAxes[axis];
    const int count = doubles ? 2 * range.count() : std::max(1, range.count() / 2);
    const int first = doubles ? 2 * range.first : range.first / 2;
    range.first = std::min(first, size - 1);
    range.last = std::min(range.first + count, size) - 1;
    if (!put(plan, v, block, rng)) return false;
  }
  return true;
}

}  // namespace rpeg::search
