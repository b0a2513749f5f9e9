#include "search/chain.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "search/moves.h"
#include "search/plan_key.h"

namespace rpeg::search {
namespace {

constexpr std::int64_t kCacheEntries = 1 << 14;  // scores; about 5 MB
constexpr double kFirstPenalty = 1.0;            // ρ at the start of the budget
constexpr double kLastPenalty = 10.0;            // ρ at its end
constexpr double kUniformFocus = 0.2;            // share of focus that ignores the critical cycle
constexpr int kDrawsPerCandidate = 8;
constexpr int kFruitlessSteps = 200;        // steps without any neighbour that end a chain
constexpr std::int64_t kLeastStall = 2000;  // evaluations without improvement that end a chain
constexpr std::int64_t kStallShare = 3;     // … and at least this part of the budget
constexpr double kAtBound = 1e-9;           // relative distance to the bound that counts as none

double geometric(double from, double to, double share) { return from * std::pow(to / from, share); }

/// A state of the chain: a plan and its score.
struct State {
  Plan plan;
  Score score;
};

class Chain {
 public:
  Chain(Workbench& bench, const ChainTask& task, ChainStatus& status)
      : bench_(bench),
        optimizer_(bench.table.config().optimizer),
        task_(task),
        status_(status),
        mover_(bench.table),
        rng_(task.seed),
        cache_(static_cast<std::size_t>(std::clamp<std::int64_t>(task.budget, 1, kCacheEntries))) {
    result_.top = TopPlans(task.top);
  }

  ChainResult run();

 private:
  void score(State& state);
  void remember(const State& state);
  double energy(const Score& score) const;
  double progress() const;
  double scheduled_temperature() const;
  double temperature() const;
  std::size_t draw_focus();
  bool draw_candidate(std::size_t focus);
  bool propose();
  void step();
  void restart();
  bool is_at_bound() const;
  bool is_stalled() const;
  bool is_over();
  void begin();

  Workbench& bench_;
  const OptimizerSpec& optimizer_;
  const ChainTask& task_;
  ChainStatus& status_;
  Mover mover_;
  Rng rng_;
  ScoreCache cache_;
  // States change places instead of being made anew.
  State current_;
  State candidate_;
  State proposal_;
  State best_;  ///< that fits, when result_.top is not empty
  State tightest_;
  std::int64_t improved_at_ = 0;     ///< evaluations when best_ or tightest_ last improved
  std::int64_t rejections_ = 0;      ///< in a row
  std::int64_t since_restart_ = -1;  ///< proposals; -1: no warm restart is cooling down
  int fruitless_ = 0;
  ChainResult result_;
};

/// Every call is an evaluation, found in the cache or not.
void Chain::score(State& state) {
  ++result_.evaluations;
  bool hit = false;
  Score& place = cache_.at(plan_key(state.plan), hit);
  if (hit) {
    ++result_.hits;
  } else {
    place = bench_.evaluator.score(state.plan);
    if (task_.checks_scores) {
      check_score(place, state.plan, bench_.table.config(), bench_.table.profile());
    }
  }
  state.score = place;
}

/// Keeps the best plans that fit, and the one nearest to fitting. Among equals the first stays.
void Chain::remember(const State& state) {
  if (state.score.overflow < tightest_.score.overflow) {
    tightest_ = state;
    improved_at_ = result_.evaluations;
  }
  if (state.score.overflow > 0.0 || result_.top.is_beyond(state.score.objective)) return;
  if (!result_.top.offer(state.plan, state.score.objective, state.score.period_s)) return;
  best_ = state;
  improved_at_ = result_.evaluations;
  status_.best_period_s = state.score.period_s;
}

double Chain::progress() const {
  const double share = static_cast<double>(result_.evaluations) / static_cast<double>(task_.budget);
  return task_.begins_at + (task_.ends_at - task_.begins_at) * share;
}

/// ln λ plus the memory penalty, whose weight grows so that what does not fit is allowed at first
/// and driven out in the end.
double Chain::energy(const Score& score) const {
  if (score.overflow <= 0.0) return score.objective;
  const double share = std::min(1.0, progress());
  return score.objective + geometric(kFirstPenalty, kLastPenalty, share) * score.overflow;
}

double Chain::scheduled_temperature() const {
  return geometric(optimizer_.t_init, optimizer_.t_min, std::min(1.0, progress()));
}

double Chain::temperature() const {
  const double scheduled = scheduled_temperature();
  if (since_restart_ < 0) return task_.heat * scheduled;
  const double share =
      static_cast<double>(since_restart_) / static_cast<double>(optimizer_.stag_window);
  return task_.heat * geometric(optimizer_.t_warm, scheduled, share);
}

/// A vertex with probability by its share of the critical cycle, mixed with a uniform choice.
std::size_t Chain::draw_focus() {
  const std::size_t vertices = current_.plan.vertices.size();
  const double draw = rng_.uniform();
  if (draw < kUniformFocus) {
    return static_cast<std::size_t>(rng_.below(static_cast<std::int64_t>(vertices)));
  }
  double left = rng_.uniform();
  for (std::size_t v = 0; v + 1 < vertices; ++v) {
    left -= static_cast<double>(current_.score.critical[v]);
    if (left < 0.0) return v;
  }
  return vertices - 1;
}

bool Chain::draw_candidate(std::size_t focus) {
  for (int draw = 0; draw < kDrawsPerCandidate; ++draw) {
    if (mover_.draw(current_.plan, focus, rng_, candidate_.plan)) return true;
  }
  return false;
}

/// Makes the best of up to k_x neighbours of the current plan the proposal.
bool Chain::propose() {
  const std::size_t focus = draw_focus();
  bool found = false;
  for (std::int64_t i = 0; i < optimizer_.k_x && result_.evaluations < task_.budget; ++i) {
    if (!draw_candidate(focus)) continue;
    score(candidate_);
    remember(candidate_);
    if (!found || energy(candidate_.score) < energy(proposal_.score)) {
      std::swap(candidate_, proposal_);
      found = true;
    }
  }
  return found;
}

/// Back to the best plan so far, at t_warm.
void Chain::restart() {
  current_ = result_.top.plans().empty() ? tightest_ : best_;
  rejections_ = 0;
  since_restart_ = 0;
  ++result_.restarts;
}

/// Accepts or rejects: against the current state, so that the temperature is a relative worsening.
void Chain::step() {
  const double worsening = energy(proposal_.score) - energy(current_.score);
  const bool accepted = worsening <= 0.0 || rng_.uniform() < std::exp(-worsening / temperature());
  if (since_restart_ >= 0 && ++since_restart_ >= optimizer_.stag_window) since_restart_ = -1;
  if (accepted) {
    std::swap(current_, proposal_);
    ++result_.accepted;
    rejections_ = 0;
  } else if (++rejections_ >= optimizer_.stag_window) {
    restart();
  }
}

bool Chain::is_at_bound() const {
  return !result_.top.plans().empty() && result_.top.plans().size() >= task_.top &&
         optimizer_.objective == Objective::kThroughput &&
         best_.score.period_s <= task_.bound_s * (1.0 + kAtBound);
}

/// Looks at this chain alone, so that its end does not depend on when others run.
bool Chain::is_stalled() const {
  const std::int64_t patience = std::max(kLeastStall, task_.budget / kStallShare);
  return result_.evaluations - improved_at_ >= patience &&
         result_.evaluations >= task_.budget - task_.budget / kStallShare;
}

bool Chain::is_over() {
  if (result_.evaluations >= task_.budget) {
    result_.end = SearchEnd::kBudget;
  } else if (task_.stop != nullptr && task_.stop->load(std::memory_order_relaxed)) {
    result_.end = SearchEnd::kStopped;
  } else if (task_.deadline && Clock::now() >= *task_.deadline) {
    result_.end = SearchEnd::kTime;
  } else if (fruitless_ >= kFruitlessSteps) {
    result_.end = SearchEnd::kNoNeighbours;
  } else if (is_at_bound()) {
    result_.end = SearchEnd::kBound;
  } else if (is_stalled()) {
    result_.end = SearchEnd::kStalled;
  } else {
    return false;
  }
  return true;
}

/// Scores the starts; the walk begins at the first.
void Chain::begin() {
  for (std::size_t i = 0; i < task_.starts.size(); ++i) {
    if (i > 0 && result_.evaluations >= task_.budget) break;
    candidate_.plan = task_.starts[i];
    score(candidate_);
    if (i == 0) {
      current_ = candidate_;
      tightest_ = candidate_;
    }
    remember(candidate_);
  }
  bool drawn = false;
  for (std::int64_t i = 0; i < task_.pools && !is_over(); ++i) {
    status_.evaluations = result_.evaluations;
    bench_.table.trim();
    if (!mover_.draw_pools(task_.starts.front(), rng_, candidate_.plan)) continue;
    score(candidate_);
    remember(candidate_);
    if (drawn && energy(candidate_.score) >= energy(current_.score)) continue;
    std::swap(current_, candidate_);
    drawn = true;
  }
}

ChainResult Chain::run() {
  begin();
  while (!is_over()) {
    if (propose()) {
      fruitless_ = 0;
      step();
    } else {
      ++fruitless_;
    }
    bench_.table.trim();
    status_.evaluations = result_.evaluations;
    status_.temperature = temperature();
  }
  status_.evaluations = result_.evaluations;
  status_.temperature = 0.0;
  result_.tightest = tightest_.plan;
  result_.least_overflow = tightest_.score.overflow;
  return std::move(result_);
}

}  // namespace

ChainResult run_chain(Workbench& bench, const ChainTask& task, ChainStatus& status) {
  return Chain(bench, task, status).run();
}

}  // namespace rpeg::search
