#pragma once

#include <vector>

#include "rpeg/plan/plan.h"

namespace rpeg::search {

/// Along one axis the ranges of a plan's blocks form components, ranges that overlap directly or
/// through others. Identical racks, nodes and GPUs may be renumbered so that components change
/// places and gaps close, each component keeping its inner order: what two blocks share, in which
/// order of their ranks, and which tier lies between them stay the same, so the plan's cost does
/// too. A plan is normal when on every axis its components follow each other from 0 without gaps,
/// in the order of their first vertices. Every plan has exactly one normal form.
bool is_normal(const std::vector<Placement>& blocks);

/// The normal form of a plan.
Plan normal_form(Plan plan);

}  // namespace rpeg::search
