#include "search/moves.h"

#include <algorithm>
#include <bit>

#include "rpeg/plan/cells.h"
#include "search/axes.h"

namespace rpeg::search {
namespace {

constexpr std::int64_t kOnePairIn = 4;
constexpr std::size_t kMoreBorders = 5;  // borders are drawn so many times more than other moves
// Blocks of more GPUs have so many shapes that pricing all sub-plans of a new one, to know the
// fastest, would take most of a search.
constexpr int kMostGpusToPrice = 512;

/// The largest power of two below m; 0 below 1. Numbers of micro-batches are powers of two, or the
/// largest that the batch allows.
std::int64_t half(std::int64_t m) {
  return m > 1 ? static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(m - 1))) : 0;
}

}  // namespace

Mover::Mover(SubPlanTable& table)
    : table_(table),
      space_(table.space()),
      draws_{&Mover::draw_split, &Mover::draw_split, &Mover::draw_micro_batches} {
  const ClusterSpec& cluster = table.config().hardware;
  for (std::size_t axis = 0; axis < kAxes.size(); ++axis) {
    if (axis_size(axis) > 1) axes_.push_back(axis);
  }
  for (std::uint32_t bit = 1; bit != 0 && bit <= space_.cuts; bit <<= 1U) {
    if ((space_.cuts & bit) != 0) cuts_.push_back(bit);
  }
  if (!axes_.empty()) {
    draws_.insert(draws_.end(),
                  {&Mover::draw_resize,
                   &Mover::draw_shift,
                   &Mover::draw_block,
                   &Mover::draw_swap,
                   &Mover::draw_align,
                   &Mover::draw_align,
                   &Mover::draw_division,
                   &Mover::draw_deal,
                   &Mover::draw_group_resize,
                   &Mover::draw_border});
    // A plan that has settled in pools leads to a better one by its borders alone.
    draws_.insert(draws_.end(), kMoreBorders, &Mover::draw_border);
  }
  if (axes_.size() > 1) draws_.push_back(&Mover::draw_snap);
  if (cluster.racks * cluster.nodes_per_rack > 1) draws_.push_back(&Mover::draw_scale);
  if (space_.tau_actor.size() * space_.tau_critic.size() > 1) {
    draws_.push_back(&Mover::draw_staleness);
  }
  if (space_.may_share && !space_.must_share) draws_.push_back(&Mover::draw_sharing);
  if (!cuts_.empty()) draws_.push_back(&Mover::draw_cut);
}

bool Mover::draw(const Plan& plan, std::size_t focus, Rng& rng, Plan& next) {
  next = plan;
  if (!draw_one(next, focus, rng)) return false;
  if (rng.below(kOnePairIn) == 0) {
    // A second move at once, of any vertex: some changes pay in pairs only.
    if (!draw_one(next, draw_index(next.vertices.size(), rng), rng)) return false;
  }
  if (next == plan || !suits_chunks(space_, next)) return false;
  const auto& max_gpus = table_.config().hardware.max_gpus;
  return !max_gpus || active_gpu_count(next) <= *max_gpus;
}

bool Mover::draw_one(Plan& plan, std::size_t focus, Rng& rng) {
  return (this->*draws_[draw_index(draws_.size(), rng)])(plan, focus, rng);
}

int Mover::axis_size(std::size_t axis) const {
  const ClusterSpec& cluster = table_.config().hardware;
  return std::array{cluster.racks, cluster.nodes_per_rack, cluster.gpus_per_node}[axis];
}

std::size_t Mover::draw_axis(Rng& rng) const { return axes_[draw_index(axes_.size(), rng)]; }

/// Puts a vertex on a block with the split of `like`, or with its tp and pp and the dp that fills
/// the block. False where neither is valid.
bool Mover::put_same(Plan& plan,
                     std::size_t vertex,
                     const Placement& block,
                     const VertexPlan& like) {
  const std::size_t k = kind(plan, vertex);
  const int model = like.parallelism.tp * like.parallelism.pp;
  const int gpus = block.gpu_count();
  if (gpus % model != 0) return false;
  const Parallelism split{gpus / model, like.parallelism.pp, like.parallelism.tp};
  std::int64_t m = like.micro_batches;
  const std::int64_t most = table_.most_micro_batches(k, split);
  if (!space_.pins[k].micro_batches) {
    // The largest number of another vertex may be none of the numbers of this one, for which alone
    // the bound holds.
    const bool whole = space_.kinds[k].op == Op::kGenerate && split.pp == 1;
    if (m != most) m = half(std::min(m, most) + 1);
    if (whole) m = 1;
  }
  if (!table_.is_valid(k, block, split, m)) return false;
  plan.vertices[vertex] = {split, m, block};
  return true;
}

/// Moves a vertex to a block: with its present split where that is valid there (half of the times),
/// else with the fastest or any split. False when the block has no valid split.
bool Mover::put(Plan& plan, std::size_t vertex, const Placement& block, Rng& rng) {
  const std::int64_t wish = rng.below(4);
  if (wish < 2 && put_same(plan, vertex, block, plan.vertices[vertex])) return true;
  const std::size_t k = kind(plan, vertex);
  const Pin& pin = space_.pins[k];
  if (pin.placement && *pin.placement != block) return false;
  const SubPlans& choices = table_.of(k, block);
  if (choices.all.empty()) return false;
  const SubPlan& choice = wish < 3 && block.gpu_count() <= kMostGpusToPrice
                              ? table_.fastest(k, block)
                              : choices.all[draw_index(choices.all.size(), rng)];
  plan.vertices[vertex] = place(choice, block);
  return true;
}

bool Mover::draw_split(Plan& plan, std::size_t focus, Rng& rng) {
  VertexPlan& mine = plan.vertices[focus];
  const SubPlans& choices = table_.of(kind(plan, focus), mine.placement);
  if (choices.all.empty()) return false;
  mine = place(choices.all[draw_index(choices.all.size(), rng)], mine.placement);
  return true;
}

/// Doubled, halved, or the largest number.
bool Mover::draw_micro_batches(Plan& plan, std::size_t focus, Rng& rng) {
  VertexPlan& mine = plan.vertices[focus];
  const std::size_t k = kind(plan, focus);
  if (space_.kinds[k].op == Op::kGenerate && mine.parallelism.pp == 1) return false;
  const std::int64_t most = table_.most_micro_batches(k, mine.parallelism);
  const std::int64_t draw = rng.below(5);
  std::int64_t m = half(mine.micro_batches);
  if (draw < 2) m = std::min(most, 2 * mine.micro_batches);
  if (draw == 4) m = most;
  if (!table_.is_valid(k, mine.placement, mine.parallelism, m)) return false;
  mine.micro_batches = m;
  return true;
}

bool Mover::draw_staleness(Plan& plan, std::size_t, Rng& rng) {
  Structure& structure = plan.structure;
  structure.tau_actor = space_.tau_actor[draw_index(space_.tau_actor.size(), rng)];
  structure.tau_critic = structure.ac_share
                             ? structure.tau_actor
                             : space_.tau_critic[draw_index(space_.tau_critic.size(), rng)];
  return true;
}

bool Mover::draw_sharing(Plan& plan, std::size_t, Rng&) {
  set_sharing(space_, !plan.structure.ac_share, plan);
  return true;
}

bool Mover::draw_cut(Plan& plan, std::size_t, Rng& rng) {
  plan.structure.cuts ^= cuts_[draw_index(cuts_.size(), rng)];
  return true;
}

/// Any structure of the space.
void Mover::draw_structure(Plan& plan, Rng& rng) {
  if (space_.may_share && !space_.must_share) set_sharing(space_, rng.below(2) == 0, plan);
  draw_staleness(plan, 0, rng);
  plan.structure.cuts = 0;
  for (const std::uint32_t cut : cuts_) {
    if (rng.below(2) == 0) plan.structure.cuts |= cut;
  }
}

}  // namespace rpeg::search
