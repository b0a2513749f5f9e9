#include "search/exhaustive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "rpeg/base/error.h"
#include "rpeg/plan/cells.h"
#include "search/frontier.h"
#include "search/symmetry.h"

namespace rpeg::search {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
// The simulator counts whole nanoseconds: times of a few tasks may come out this much shorter.
constexpr double kRounding_s = 1e-8;

/// A sub-plan with times that the vertex cannot beat in any plan of the structure.
struct Choice {
  SubPlan sub_plan;
  double time_s = 0.0;  ///< of all its chunks
  double path_s = 0.0;  ///< of the chunk that training waits for
};

/// A block with the choices of one vertex there.
struct Site {
  Placement block;
  std::vector<Choice> choices;
  double least_time_s = kInfinite;
  double least_path_s = kInfinite;
};

/// Least times of every vertex, as far as it is decided.
struct Times {
  double time_s = 0.0;
  double path_s = 0.0;
  double gpu_s = 0.0;
};

/// Tries all plans of one structure.
class StructureSearch {
 public:
  StructureSearch(Workbench& bench,
                  const Structure& structure,
                  const std::atomic<bool>* stop,
                  ChainResult& result)
      : bench_(bench), stop_(stop), result_(result) {
    plan_.structure = structure;
    const std::vector<std::size_t>& kinds = kinds_of(bench.table.space(), structure);
    for (const std::size_t kind : kinds) {
      vertices_.push_back(bench.table.space().kinds[kind]);
      sites_.push_back(sites_of(kind));
      Times least{kInfinite, kInfinite, kInfinite};
      for (const Site& site : sites_.back()) {
        least.time_s = std::min(least.time_s, site.least_time_s);
        least.path_s = std::min(least.path_s, site.least_path_s);
        least.gpu_s = std::min(least.gpu_s, site.least_time_s * site.block.gpu_count());
      }
      times_.push_back(least);
    }
    plan_.vertices.resize(kinds.size());
    chosen_.resize(kinds.size());
    blocks_.resize(kinds.size());
    const ClusterSpec& cluster = bench.table.config().hardware;
    gpus_ = cluster.gpu_count();
    work_s_.resize(static_cast<std::size_t>(gpus_));
  }

  void run() { choose_block(0); }

 private:
  std::vector<Site> sites_of(std::size_t kind);
  Choice make_choice(std::size_t kind, const Placement& block, const SubPlan& sub_plan) const;
  void choose_block(std::size_t v);
  void choose_sub_plan(std::size_t v);
  void evaluate();
  bool is_hopeless(std::size_t placed);
  double cycles_s() const;
  bool is_stopped() const { return stop_ != nullptr && stop_->load(std::memory_order_relaxed); }

  Workbench& bench_;
  const std::atomic<bool>* stop_;
  ChainResult& result_;
  Plan plan_;
  std::vector<Vertex> vertices_;
  std::vector<std::vector<Site>> sites_;
  std::vector<const Site*> chosen_;
  std::vector<Placement> blocks_;
  std::vector<Times> times_;
  std::vector<double> work_s_;  ///< scratch: per GPU
  int gpus_ = 1;
};

Choice StructureSearch::make_choice(std::size_t kind,
                                    const Placement& block,
                                    const SubPlan& sub_plan) const {
  const SubPlanTable& table = bench_.table;
  const Vertex& vertex = table.space().kinds[kind];
  const VertexPlan plan = place(sub_plan, block);
  Choice choice{sub_plan, 0.0, 0.0};
  const auto parts = response_parts(plan_.structure.cuts, table.config().workload);
  if (parts.size() > 1 && is_inference(vertex.op)) {
    for (const ResponsePart& part : parts) {
      choice.path_s = price_part(vertex, plan, part, 1, table.config(), table.profile()).total_s;
      choice.time_s += choice.path_s;
    }
    return choice;
  }
  choice.time_s = least_time_s(table, kind, plan);
  choice.path_s = choice.time_s;
  return choice;
}

std::vector<Site> StructureSearch::sites_of(std::size_t kind) {
  const Space& space = bench_.table.space();
  std::vector<Site> sites;
  for (const Placement& block : all_blocks(bench_.table.config().hardware)) {
    Site site{block, {}, kInfinite, kInfinite};
    for (const SubPlan& sub_plan : bench_.table.of(kind, block).all) {
      if (!suits_chunks(
              space, kind, plan_.structure, sub_plan.parallelism, sub_plan.micro_batches)) {
        continue;
      }
      site.choices.push_back(make_choice(kind, block, sub_plan));
      site.least_time_s = std::min(site.least_time_s, site.choices.back().time_s);
      site.least_path_s = std::min(site.least_path_s, site.choices.back().path_s);
    }
    if (!site.choices.empty()) sites.push_back(std::move(site));
  }
  return sites;
}

/// The longest of generation, one inference, training; and of the critic's cycle.
double StructureSearch::cycles_s() const {
  double generation_s = 0.0;
  double inference_s = 0.0;
  double value_s = 0.0;
  double critic_s = 0.0;
  double train_s = 0.0;
  for (std::size_t v = 0; v < vertices_.size(); ++v) {
    const Times& mine = times_[v];
    if (vertices_[v].op == Op::kGenerate) generation_s = mine.time_s;
    if (is_inference(vertices_[v].op)) inference_s = std::max(inference_s, mine.path_s);
    if (vertices_[v].op == Op::kInferValue) value_s = mine.path_s;
    if (!is_training(vertices_[v].op)) continue;
    (vertices_[v].model == ModelRole::kCritic ? critic_s : train_s) = mine.time_s;
  }
  const bool offline = generation_s <= 0.0;
  const double actor_delta = offline ? 2.0 : 1.0 + static_cast<double>(plan_.structure.tau_actor);
  const double critic_delta = 1.0 + static_cast<double>(plan_.structure.tau_critic);
  return std::max((generation_s + inference_s + train_s) / actor_delta,
                  critic_s > 0.0 ? (value_s + critic_s) / critic_delta : 0.0);
}

/// Whether nothing that begins with the first `placed` blocks can enter the plans kept.
bool StructureSearch::is_hopeless(std::size_t placed) {
  const ClusterSpec& cluster = bench_.table.config().hardware;
  std::ranges::fill(work_s_, 0.0);
  double gpu_s = 0.0;
  double bound_s = cycles_s();
  for (std::size_t v = 0; v < times_.size(); ++v) {
    gpu_s += times_[v].gpu_s;
    if (v >= placed) continue;
    const Placement& b = blocks_[v];
    for (int rack = b.racks.first; rack <= b.racks.last; ++rack) {
      for (int node = b.nodes.first; node <= b.nodes.last; ++node) {
        for (int gpu = b.gpus.first; gpu <= b.gpus.last; ++gpu) {
          const int id = (rack * cluster.nodes_per_rack + node) * cluster.gpus_per_node + gpu;
          work_s_[static_cast<std::size_t>(id)] += times_[v].time_s;
        }
      }
    }
  }
  bound_s = std::max(bound_s, gpu_s / std::min(gpus_, cluster.max_gpus.value_or(gpus_)));
  double active = 0.0;
  for (const double work : work_s_) {
    bound_s = std::max(bound_s, work);
    if (work > 0.0) active += 1.0;
  }
  double objective = std::log(std::max(1e-300, bound_s * (1.0 - 1e-9) - kRounding_s));
  if (bench_.table.config().optimizer.objective == Objective::kCost) {
    objective += std::log(std::max(1.0, active));
  }
  return result_.top.is_beyond(objective);
}

void StructureSearch::choose_block(std::size_t v) {
  if (v == blocks_.size()) {
    if (!is_normal(blocks_)) return;
    for (std::size_t i = 0; i < blocks_.size(); ++i) plan_.vertices[i].placement = blocks_[i];
    const auto& max_gpus = bench_.table.config().hardware.max_gpus;
    if (max_gpus && active_gpu_count(plan_) > *max_gpus) return;
    choose_sub_plan(0);
    return;
  }
  const Times least = times_[v];
  for (const Site& site : sites_[v]) {
    if (is_stopped()) break;
    blocks_[v] = site.block;
    chosen_[v] = &site;
    times_[v] = {site.least_time_s, site.least_path_s, site.least_time_s * site.block.gpu_count()};
    if (!is_hopeless(v + 1)) choose_block(v + 1);
  }
  times_[v] = least;
}

void StructureSearch::choose_sub_plan(std::size_t v) {
  if (v == blocks_.size()) {
    evaluate();
    return;
  }
  const Times least = times_[v];
  for (const Choice& choice : chosen_[v]->choices) {
    if (is_stopped()) break;
    times_[v] = {choice.time_s, choice.path_s, choice.time_s * blocks_[v].gpu_count()};
    plan_.vertices[v] = place(choice.sub_plan, blocks_[v]);
    if (!is_hopeless(blocks_.size())) choose_sub_plan(v + 1);
  }
  times_[v] = least;
}

void StructureSearch::evaluate() { look_at(bench_, plan_, result_); }

}  // namespace

void look_at(Workbench& bench, const Plan& plan, ChainResult& result) {
  ++result.evaluations;
  const Score score = bench.evaluator.score(plan);
  if (score.overflow < result.least_overflow) {
    result.least_overflow = score.overflow;
    result.tightest = plan;
  }
  if (score.overflow > 0.0 || result.top.is_beyond(score.objective)) return;
  result.top.offer(plan, score.objective, score.period_s);
}

ChainResult try_all(Workbench& bench,
                    const SpaceSize& size,
                    std::size_t top,
                    const std::atomic<bool>* stop,
                    ChainStatus& status) {
  if (size.distinct > kMostPlans) {
    throw Error(ErrorKind::kUsage,
                fmt::format("trying every plan is for small spaces: this one has about {:.2g} "
                            "distinct plans, more than {:.0g}; take a smaller cluster or batch, "
                            "pin decisions, or search without it",
                            size.distinct,
                            kMostPlans));
  }
  ChainResult result;
  result.top = TopPlans(top);
  result.least_overflow = kInfinite;
  result.end = SearchEnd::kExhausted;
  for (const Structure& structure : all_structures(bench.table.space())) {
    StructureSearch(bench, structure, stop, result).run();
    status.evaluations = result.evaluations;
    if (!result.top.plans().empty()) status.best_period_s = result.top.plans().front().period_s;
    if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
      result.end = SearchEnd::kStopped;
      break;
    }
  }
  return result;
}

}  // namespace rpeg::search
