#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rpeg/base/rng.h"
#include "rpeg/plan/plan.h"
#include "search/sub_plans.h"

namespace rpeg::search {

/// Draws random neighbours of plans. Every plan it returns is structurally valid and in the space
/// of its table.
class Mover {
 public:
  explicit Mover(SubPlanTable& table);

  /// Makes `next` a plan that differs from `plan` in the focused vertex (perhaps others with it) or
  /// in the structure. False when the draw leads nowhere; `next` then means nothing. Both plans
  /// keep their storage, so that a warm call allocates nothing.
  bool draw(const Plan& plan, std::size_t focus, Rng& rng, Plan& next);

  /// Divides the usable block into pools at random and deals all vertices to them, each with the
  /// fastest or any split: a plan that owes nothing to `plan` but, half of the times, its
  /// structure.
  bool draw_pools(const Plan& plan, Rng& rng, Plan& next);

 private:
  using Draw = bool (Mover::*)(Plan&, std::size_t, Rng&);

  bool draw_one(Plan& plan, std::size_t focus, Rng& rng);
  // Of one vertex on its block.
  bool draw_split(Plan& plan, std::size_t focus, Rng& rng);
  bool draw_micro_batches(Plan& plan, std::size_t focus, Rng& rng);
  // Of blocks.
  bool draw_resize(Plan& plan, std::size_t focus, Rng& rng);
  bool draw_shift(Plan& plan, std::size_t focus, Rng& rng);
  bool draw_block(Plan& plan, std::size_t focus, Rng& rng);
  bool draw_swap(Plan& plan, std::size_t focus, Rng& rng);
  bool draw_align(Plan& plan, std::size_t focus, Rng& rng);
  bool draw_division(Plan& plan, std::size_t focus, Rng& rng);
  bool draw_deal(Plan& plan, std::size_t focus, Rng& rng);
  bool draw_group_resize(Plan& plan, std::size_t focus, Rng& rng);
  bool draw_border(Plan& plan, std::size_t focus, Rng& rng);
  bool draw_snap(Plan& plan, std::size_t focus, Rng& rng);
  bool draw_scale(Plan& plan, std::size_t focus, Rng& rng);
  // Of the structure.
  bool draw_staleness(Plan& plan, std::size_t focus, Rng& rng);
  bool draw_sharing(Plan& plan, std::size_t focus, Rng& rng);
  bool draw_cut(Plan& plan, std::size_t focus, Rng& rng);
  void draw_structure(Plan& plan, Rng& rng);

  std::size_t kind(const Plan& plan, std::size_t vertex) const {
    return kinds_of(table_.space(), plan.structure)[vertex];
  }
  bool put(Plan& plan, std::size_t vertex, const Placement& block, Rng& rng);
  bool put_same(Plan& plan, std::size_t vertex, const Placement& block, const VertexPlan& like);
  Placement resized(const Placement& block, Rng& rng) const;
  std::size_t draw_axis(Rng& rng) const;
  int axis_size(std::size_t axis) const;

  SubPlanTable& table_;
  const Space& space_;
  std::vector<Draw> draws_;
  std::vector<std::size_t> axes_;    ///< those on which the cluster has more than one of a thing
  std::vector<std::uint32_t> cuts_;  ///< each possible cut as a mask
  std::vector<Placement> pools_;     ///< scratch
  std::vector<std::size_t> group_;   ///< scratch
};

}  // namespace rpeg::search
