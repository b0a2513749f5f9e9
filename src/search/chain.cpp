#include "search/chain.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace rpeg::search {
namespace {

constexpr std::size_t kCacheEntries = 100000;  // per chain; emptied when full
constexpr double kFirstPenalty = 1.0;          // ρ at the start of the budget
constexpr double kLastPenalty = 10.0;          // ρ at its end
constexpr double kUniformFocus = 0.2;          // share of focus that ignores the critical cycle
constexpr int kDrawsPerCandidate = 8;
constexpr int kFruitlessSteps = 200;  // steps without any neighbour that end a chain

double geometric(double from, double to, double share) { return from * std::pow(to / from, share); }

/// A state of the chain: a plan and its score.
struct State {
  Plan plan;
  Score score;
};

class Chain {
 public:
  Chain(SubPlanTable& table, const ChainTask& task, ChainStatus& status)
      : table_(table),
        optimizer_(table.config().optimizer),
        task_(task),
        status_(status),
        mover_(table),
        rng_(task.seed) {}

  ChainResult run();

 private:
  const Score& score(const Plan& plan);
  void remember(const State& state);
  double energy(const Score& score) const;
  double progress() const;
  double scheduled_temperature() const;
  double temperature() const;
  std::size_t draw_focus();
  std::optional<State> propose();
  void step(State proposal);
  void restart();
  bool is_over();

  SubPlanTable& table_;
  const OptimizerSpec& optimizer_;
  const ChainTask& task_;
  ChainStatus& status_;
  Mover mover_;
  Rng rng_;
  std::unordered_map<std::string, Score> cache_;
  State current_;
  std::optional<State> best_;  ///< that fits
  State tightest_;
  std::int64_t rejections_ = 0;      ///< in a row
  std::int64_t since_restart_ = -1;  ///< proposals; -1: no warm restart is cooling down
  int fruitless_ = 0;
  ChainResult result_;
};

/// Every call is an evaluation, found in the cache or not.
const Score& Chain::score(const Plan& plan) {
  ++result_.evaluations;
  std::string key = plan_key(plan);
  const auto found = cache_.find(key);
  if (found != cache_.end()) {
    ++result_.hits;
    return found->second;
  }
  if (cache_.size() >= kCacheEntries) cache_.clear();
  const Evaluation evaluation = evaluate_plan(plan, table_.config(), table_.profile());
  Score fresh{plan_objective(evaluation, table_.config()),
              evaluation.priced.overflow,
              evaluation.steady.period_s,
              {}};
  for (const double share : critical_shares(evaluation)) {
    fresh.critical.push_back(static_cast<float>(share));
  }
  return cache_.emplace(std::move(key), std::move(fresh)).first->second;
}

/// Keeps the best plan that fits, and the one nearest to fitting. Among equals the first stays.
void Chain::remember(const State& state) {
  if (state.score.overflow < tightest_.score.overflow) tightest_ = state;
  if (state.score.overflow > 0.0) return;
  if (best_ && state.score.objective >= best_->score.objective) return;
  best_ = state;
  status_.best_period_s = state.score.period_s;
}

double Chain::progress() const {
  return static_cast<double>(result_.evaluations) / static_cast<double>(task_.budget);
}

/// ln λ plus the memory penalty, whose weight grows so that what does not fit is allowed at first
/// and driven out in the end.
double Chain::energy(const Score& score) const {
  const double share = std::min(1.0, progress());
  return score.objective + geometric(kFirstPenalty, kLastPenalty, share) * score.overflow;
}

double Chain::scheduled_temperature() const {
  return geometric(optimizer_.t_init, optimizer_.t_min, std::min(1.0, progress()));
}

double Chain::temperature() const {
  const double scheduled = scheduled_temperature();
  if (since_restart_ < 0) return scheduled;
  const double share =
      static_cast<double>(since_restart_) / static_cast<double>(optimizer_.stag_window);
  return geometric(optimizer_.t_warm, scheduled, share);
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

/// The best of up to k_x neighbours of the current plan.
std::optional<State> Chain::propose() {
  const std::size_t focus = draw_focus();
  std::optional<State> best;
  for (std::int64_t i = 0; i < optimizer_.k_x && result_.evaluations < task_.budget; ++i) {
    std::optional<Plan> neighbour;
    for (int draw = 0; draw < kDrawsPerCandidate && !neighbour; ++draw) {
      neighbour = mover_.draw(current_.plan, focus, rng_);
    }
    if (!neighbour) continue;
    State state{std::move(*neighbour), {}};
    state.score = score(state.plan);
    remember(state);
    if (!best || energy(state.score) < energy(best->score)) best = std::move(state);
  }
  return best;
}

/// Back to the best plan so far, at t_warm.
void Chain::restart() {
  current_ = best_ ? *best_ : tightest_;
  rejections_ = 0;
  since_restart_ = 0;
  ++result_.restarts;
}

/// Accepts or rejects: against the current state, so that the temperature is a relative worsening.
void Chain::step(State proposal) {
  const double worsening = energy(proposal.score) - energy(current_.score);
  const bool accepted = worsening <= 0.0 || rng_.uniform() < std::exp(-worsening / temperature());
  if (since_restart_ >= 0 && ++since_restart_ >= optimizer_.stag_window) since_restart_ = -1;
  if (accepted) {
    current_ = std::move(proposal);
    rejections_ = 0;
  } else if (++rejections_ >= optimizer_.stag_window) {
    restart();
  }
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
  } else {
    return false;
  }
  return true;
}

ChainResult Chain::run() {
  current_.plan = mover_.admit(task_.start);
  current_.score = score(current_.plan);
  tightest_ = current_;
  remember(current_);
  while (!is_over()) {
    auto proposal = propose();
    if (proposal) {
      fruitless_ = 0;
      step(std::move(*proposal));
    } else {
      ++fruitless_;
    }
    status_.evaluations = result_.evaluations;
    status_.temperature = temperature();
  }
  status_.temperature = 0.0;
  if (best_) {
    result_.best = best_->plan;
    result_.best_objective = best_->score.objective;
  }
  result_.tightest = tightest_.plan;
  result_.least_overflow = tightest_.score.overflow;
  return result_;
}

}  // namespace

std::string plan_key(const Plan& plan) {
  std::string key;
  key.reserve(16 + 32 * plan.vertices.size());
  const auto add = [&key](std::int64_t value) {
    // Seven bits a byte, the high bit says that more follow: short, and free of ambiguity.
    auto rest = static_cast<std::uint64_t>(value);
    while (rest >= 0x80U) {
      key.push_back(static_cast<char>(0x80U | (rest & 0x7FU)));
      rest >>= 7U;
    }
    key.push_back(static_cast<char>(rest));
  };
  add(plan.structure.tau_actor);
  add(plan.structure.tau_critic);
  for (const VertexPlan& vertex : plan.vertices) {
    add(vertex.parallelism.dp);
    add(vertex.parallelism.pp);
    add(vertex.parallelism.tp);
    add(vertex.micro_batches);
    for (const Range& range :
         {vertex.placement.racks, vertex.placement.nodes, vertex.placement.gpus}) {
      add(range.first);
      add(range.last);
    }
  }
  return key;
}

ChainResult run_chain(SubPlanTable& table, const ChainTask& task, ChainStatus& status) {
  return Chain(table, task, status).run();
}

}  // namespace rpeg::search
