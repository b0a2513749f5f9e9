#include "hill_climber.h"

#include <algorithm>
#include <optional>

#include "rpeg/base/rng.h"
#include "rpeg/graph/graph.h"
#include "search/evaluator.h"

namespace rpeg::bench {
namespace {

constexpr std::int64_t kPatience = 3000;  // neighbours without improvement that end a climb
constexpr double kOverflowWeight = 20.0;

class Climber {
 public:
  Climber(const Job& job, std::uint64_t seed)
      : config_(job.config), evaluator_(job.config, job.profile), rng_(seed) {
    const bool ppo = config_.policy.algorithm == Algorithm::kPpo;
    may_share_ = ppo && config_.policy.allow_ac_share;
    may_lag_ = build_graph(config_.policy, {}).vertices.front().op == Op::kGenerate;
    cuts_ = possible_cuts(config_);
  }

  Climbed run(std::int64_t evaluations) {
    Climbed best;
    while (used_ < evaluations) {
      climb(evaluations, best);
      ++best.climbs;
    }
    return best;
  }

 private:
  int pick(int first, int last) { return first + static_cast<int>(rng_.below(last - first + 1)); }
  Range range(int size) {
    // Half of the times all of it: large blocks matter more often.
    if (pick(0, 1) == 0) return {0, size - 1};
    const int a = pick(0, size - 1);
    const int b = pick(0, size - 1);
    return {std::min(a, b), std::max(a, b)};
  }
  Placement block() {
    const ClusterSpec& c = config_.hardware;
    return {range(c.racks), range(c.nodes_per_rack), range(c.gpus_per_node)};
  }

  /// Any split of a block; nothing when a hundred draws are not valid.
  std::optional<VertexPlan> on(const Vertex& vertex, const Placement& where) {
    const int gpus = where.gpu_count();
    for (int i = 0; i < 100; ++i) {
      VertexPlan plan;
      plan.placement = where;
      plan.parallelism.tp = 1 << pick(0, 3);
      plan.parallelism.pp = pick(0, 2) == 0 ? pick(1, 16) : 1 << pick(0, 3);
      const int model = plan.parallelism.tp * plan.parallelism.pp;
      if (gpus % model != 0) continue;
      plan.parallelism.dp = gpus / model;
      const bool whole = vertex.op == Op::kGenerate && plan.parallelism.pp == 1;
      plan.micro_batches = whole ? 1 : 1 << pick(0, 8);
      if (is_valid(vertex, plan)) return plan;
    }
    return std::nullopt;
  }

  bool is_valid(const Vertex& vertex, const VertexPlan& plan) const {
    Plan one;
    one.vertices = {plan};
    return find_violations(one, Graph{{vertex}, {}}, config_).empty();
  }

  Plan random_plan() {
    Plan plan;
    if (may_lag_) {
      const auto& taus = config_.optimizer.staleness_actor;
      plan.structure.tau_actor =
          taus[static_cast<std::size_t>(pick(0, static_cast<int>(taus.size()) - 1))];
    }
    vertices_ = build_graph(config_.policy, plan.structure).vertices;
    const Placement common = block();
    for (const Vertex& vertex : vertices_) {
      std::optional<VertexPlan> mine;
      while (!mine) mine = on(vertex, pick(0, 1) == 0 ? common : block());
      plan.vertices.push_back(*mine);
    }
    return plan;
  }

  bool change_structure(Plan& plan) {
    const int what = pick(0, 2);
    if (what == 0 && may_lag_) {
      const auto& taus = config_.optimizer.staleness_actor;
      plan.structure.tau_actor =
          taus[static_cast<std::size_t>(pick(0, static_cast<int>(taus.size()) - 1))];
      if (plan.structure.ac_share) plan.structure.tau_critic = plan.structure.tau_actor;
      return true;
    }
    if (what == 1 && cuts_ != 0) {
      const std::uint32_t bit = 1U << pick(0, 31);
      plan.structure.cuts ^= bit & cuts_;
      return (bit & cuts_) != 0;
    }
    if (what == 2 && may_share_) {
      if (plan.structure.ac_share) {
        plan.vertices.push_back(plan.vertices.back());
        plan.structure.tau_critic = config_.optimizer.staleness_critic.front();
      } else {
        plan.vertices.erase(plan.vertices.end() - 2);
        plan.structure.tau_critic = plan.structure.tau_actor;
      }
      plan.structure.ac_share = !plan.structure.ac_share;
      vertices_ = build_graph(config_.policy, plan.structure).vertices;
      return true;
    }
    return false;
  }

  bool change(Plan& plan) {
    if (pick(0, 9) == 0) return change_structure(plan);
    // One to three vertices at once, on one block or each on its own.
    const int count = pick(1, 3);
    const auto size = static_cast<int>(plan.vertices.size());
    std::optional<Placement> common;
    if (pick(0, 1) == 0)
      common = pick(0, 1) == 0
                   ? block()
                   : plan.vertices[static_cast<std::size_t>(pick(0, size - 1))].placement;
    for (int i = 0; i < count; ++i) {
      const auto v = static_cast<std::size_t>(pick(0, size - 1));
      VertexPlan& mine = plan.vertices[v];
      if (pick(0, 2) == 0) {
        mine.micro_batches = pick(0, 1) == 0 ? 2 * mine.micro_batches : mine.micro_batches / 2;
        if (!is_valid(vertices_[v], mine)) return false;
        continue;
      }
      const Placement where = common ? *common : pick(0, 1) == 0 ? block() : mine.placement;
      const auto next = on(vertices_[v], where);
      if (!next) return false;
      mine = *next;
    }
    return true;
  }

  double cost(const search::Score& score) const {
    return score.objective + kOverflowWeight * score.overflow;
  }

  void remember(const Plan& plan, const search::Score& score, Climbed& best) const {
    if (score.overflow > 0.0) return;
    if (best.period_s > 0.0 && score.period_s >= best.period_s) return;
    best.plan = plan;
    best.period_s = score.period_s;
  }

  void climb(std::int64_t evaluations, Climbed& best) {
    Plan plan = random_plan();
    search::Score score = evaluator_.score(plan);
    remember(plan, score, best);
    for (std::int64_t fruitless = 0; fruitless < kPatience && used_ < evaluations;) {
      Plan next = plan;
      if (change(next)) {
        ++used_;
        ++fruitless;
        const search::Score theirs = evaluator_.score(next);
        if (cost(theirs) < cost(score)) {
          plan = std::move(next);
          score = theirs;
          fruitless = 0;
          remember(plan, score, best);
        }
      } else {
        vertices_ = build_graph(config_.policy, plan.structure).vertices;
      }
      if (vertices_.size() != plan.vertices.size()) {
        vertices_ = build_graph(config_.policy, plan.structure).vertices;
      }
    }
  }

  const WorkloadConfig& config_;
  search::Evaluator evaluator_;
  Rng rng_;
  std::vector<Vertex> vertices_;
  std::int64_t used_ = 0;
  std::uint32_t cuts_ = 0;
  bool may_share_ = false;
  bool may_lag_ = false;
};

}  // namespace

Climbed climb(const Job& job, std::uint64_t seed, std::int64_t evaluations) {
  return Climber(job, seed).run(evaluations);
}

}  // namespace rpeg::bench
