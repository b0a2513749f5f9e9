#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "rpeg/base/rng.h"
#include "rpeg/plan/plan.h"
#include "search/sub_plans.h"

namespace rpeg::search {

/// Draws random neighbours of plans. Every plan it returns is structurally valid.
class Mover {
 public:
  explicit Mover(SubPlanTable& table);

  /// A plan that differs from `plan` in the focused vertex (perhaps others with it) or in the
  /// staleness; nothing when the draw leads nowhere.
  std::optional<Plan> draw(const Plan& plan, std::size_t focus, Rng& rng);

  /// The plan with a staleness that the configuration allows: its own, or else the first candidate.
  Plan admit(Plan plan) const;

 private:
  using Draw = std::optional<Plan> (Mover::*)(const Plan&, std::size_t, Rng&);

  std::optional<Plan> draw_one(const Plan& plan, std::size_t focus, Rng& rng);
  std::optional<Plan> draw_split(const Plan& plan, std::size_t focus, Rng& rng);
  std::optional<Plan> draw_micro_batches(const Plan& plan, std::size_t focus, Rng& rng);
  std::optional<Plan> draw_resize(const Plan& plan, std::size_t focus, Rng& rng);
  std::optional<Plan> draw_shift(const Plan& plan, std::size_t focus, Rng& rng);
  std::optional<Plan> draw_block(const Plan& plan, std::size_t focus, Rng& rng);
  std::optional<Plan> draw_swap(const Plan& plan, std::size_t focus, Rng& rng);
  std::optional<Plan> draw_align(const Plan& plan, std::size_t focus, Rng& rng);
  std::optional<Plan> draw_division(const Plan& plan, std::size_t focus, Rng& rng);
  std::optional<Plan> draw_group_resize(const Plan& plan, std::size_t focus, Rng& rng);
  std::optional<Plan> draw_staleness(const Plan& plan, std::size_t focus, Rng& rng);

  bool put(Plan& plan, std::size_t vertex, const Placement& block, Rng& rng);
  Placement resized(const Placement& block, Rng& rng) const;
  int axis_size(std::size_t axis) const;

  SubPlanTable& table_;
  std::vector<Draw> draws_;
  std::vector<Structure> structures_;
};

}  // namespace rpeg::search
