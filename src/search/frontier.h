#pragma once

#include <cstdint>
#include <vector>

#include "search/sub_plans.h"

namespace rpeg::search {

/// What a vertex can do alone: how long it takes and how much GPU time it needs for that.
struct Point {
  double time_s = 0.0;
  double gpu_s = 0.0;  ///< GPUs × time
};

/// The Pareto frontier of such points: ascending time, descending GPU time.
using Frontier = std::vector<Point>;

/// Keeps the points that no other is at least as good as in both.
Frontier pareto(std::vector<Point> points);
/// Least GPU time of the points within a time; infinite when there is none.
double gpu_s_within(const Frontier& frontier, double time_s);

/// The frontiers of one kind of vertex over all blocks and sub-plans.
struct KindFrontiers {
  Frontier whole;       ///< uncut; sub-plans that fit alone
  Frontier cut;         ///< with the best cuts for each sub-plan, none included; in any memory
  Frontier last_chunk;  ///< the chunk behind the last possible cut; in any memory
};

/// A time that the uncut vertex cannot beat in any plan: generation with more KV slots than any
/// plan leaves it.
double least_time_s(const SubPlanTable& table, std::size_t kind, const VertexPlan& plan);

/// Sub-plans that `kind_frontiers` would price; stops counting beyond `most`.
std::int64_t count_sub_plans(SubPlanTable& table, std::int64_t most);

/// `cut` and `last_chunk` are those of an inference vertex that reads rollouts when the space has
/// cuts; else both equal `whole`.
KindFrontiers kind_frontiers(SubPlanTable& table, std::size_t kind);

}  // namespace rpeg::search
