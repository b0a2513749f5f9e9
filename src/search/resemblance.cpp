#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "rpeg/base/error.h"
#include "rpeg/base/units.h"
#include "rpeg/graph/graph.h"
#include "rpeg/search/baseline.h"
#include "rpeg/search/explain.h"

namespace rpeg {
namespace {

/// A named plan and how close another comes to it.
struct Style {
  std::string name;
  Evaluation evaluation;
  int equal_relations = 0;  ///< pairs of vertices whose blocks relate alike in both plans
  int relations = 0;
  double likeness = 0.0;  ///< 0 … 1
};

std::string description(const std::string& name) {
  if (name == "greedy") return "every vertex on all GPUs, one after the other (greedy)";
  if (name == "concurrent") {
    return "a pool of GPUs for each model, side by side, as verl and OpenRLHF are deployed "
           "(concurrent)";
  }
  if (name == "colocated-uniform") {
    return "one split for all vertices on all GPUs, as in DeepSpeed-Chat (colocated-uniform)";
  }
  if (name == "split-async") {
    return "a generation pool beside a training pool one update behind, as in AReaL and StreamRL "
           "(split-async)";
  }
  if (name == "real-heuristic") {
    return "tensor parallelism inside a node and pipeline parallelism between nodes, the heuristic "
           "of the ReaL paper (real-heuristic)";
  }
  return name;
}

enum class Relation { kEqual, kOverlapping, kApart };

bool overlaps(const Range& a, const Range& b) { return a.first <= b.last && b.first <= a.last; }

Relation relation(const Placement& a, const Placement& b) {
  if (a == b) return Relation::kEqual;
  const bool meet =
      overlaps(a.racks, b.racks) && overlaps(a.nodes, b.nodes) && overlaps(a.gpus, b.gpus);
  return meet ? Relation::kOverlapping : Relation::kApart;
}

/// The vertices that both plans have (a shared trunk trains in place of the actor): index pairs.
std::vector<std::pair<std::size_t, std::size_t>> common_vertices(const Plan& a,
                                                                 const Plan& b,
                                                                 const PolicySpec& policy) {
  const Graph there = build_graph(policy, b.structure);
  const Graph here = build_graph(policy, a.structure);
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t v = 0; v < here.vertices.size(); ++v) {
    VertexId same = find_vertex(there, here.vertices[v].name);
    if (here.vertices[v].name == "t_piV" && same == VertexId{-1}) same = find_vertex(there, "t_pi");
    if (same != VertexId{-1}) pairs.emplace_back(v, index(same));
  }
  return pairs;
}

/// 1 for equal splits; every doubling of dp, pp or tp between them halves it.
double split_likeness(const Parallelism& a, const Parallelism& b) {
  const auto doublings = [](int x, int y) {
    return std::abs(std::log2(static_cast<double>(x) / static_cast<double>(y)));
  };
  return std::exp2(-doublings(a.dp, b.dp) - doublings(a.pp, b.pp) - doublings(a.tp, b.tp));
}

void compare_with(Style* style, const Plan& plan, const PolicySpec& policy) {
  const Plan& other = style->evaluation.plan;
  const auto pairs = common_vertices(plan, other, policy);
  double splits = 0.0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const VertexPlan& a = plan.vertices[pairs[i].first];
    const VertexPlan& b = other.vertices[pairs[i].second];
    splits += split_likeness(a.parallelism, b.parallelism);
    for (std::size_t j = i + 1; j < pairs.size(); ++j) {
      ++style->relations;
      style->equal_relations += relation(a.placement, plan.vertices[pairs[j].first].placement) ==
                                relation(b.placement, other.vertices[pairs[j].second].placement);
    }
  }
  const Structure& a = plan.structure;
  const Structure& b = other.structure;
  const int structure = ((a.tau_actor > 0) == (b.tau_actor > 0)) + (a.ac_share == b.ac_share) +
                        ((a.cuts != 0) == (b.cuts != 0));
  constexpr double kBlocks = 0.5;  // who runs beside whom makes a style; the rest refines it
  constexpr double kStructure = 0.25;
  constexpr double kSplits = 0.25;
  style->likeness =
      kBlocks * (style->relations > 0 ? 1.0 * style->equal_relations / style->relations : 1.0) +
      kStructure * structure / 3.0 + kSplits * splits / static_cast<double>(pairs.size());
}

std::optional<Style> closest_style(const Plan& plan,
                                   const WorkloadConfig& config,
                                   const HardwareProfile& profile) {
  std::optional<Style> closest;
  for (const std::string& name : plan_names()) {
    Style style;
    style.name = name;
    try {
      style.evaluation = evaluate_plan(named_plan(name, config, profile), config, profile);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInfeasible) throw;
      continue;  // the cluster cannot hold this style
    }
    compare_with(&style, plan, config.policy);
    if (!closest || style.likeness > closest->likeness) closest = std::move(style);
  }
  return closest;
}

constexpr double kNoticeable = 0.005;  // share of the period below which plans count as equal

double percent(double part, double whole) { return 100.0 * part / whole; }

/// A plan that does not fit has no time worth telling: its cache holds next to nothing.
std::string effect_text(const Difference& difference, double period_s) {
  if (!difference.fits) return difference.what + " would not fit into memory";
  const double change = percent(difference.effect_s, period_s);
  return fmt::format("{} would make it {:.1f} % {}",
                     difference.what,
                     std::abs(change),
                     change < 0.0 ? "faster" : "slower");
}

std::string counted(std::size_t count, const std::string& one, const std::string& many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

/// "Taken over one at a time, …": the decisions that matter, and how many do not.
std::string differences_text(const std::vector<Difference>& differences,
                             double period_s,
                             const std::string& style) {
  constexpr double kSmall = 100.0 * kNoticeable;  // percent
  constexpr std::size_t kMost = 4;
  std::vector<std::string> told;
  std::size_t more = 0;
  std::size_t small = 0;
  std::size_t coupled = 0;
  for (const Difference& difference : differences) {
    if (!difference.valid) {
      ++coupled;
    } else if (difference.fits && std::abs(percent(difference.effect_s, period_s)) < kSmall) {
      ++small;
    } else if (told.size() < kMost) {
      told.push_back(effect_text(difference, period_s));
    } else {
      ++more;
    }
  }
  std::string text;
  if (!told.empty()) {
    text += fmt::format(" Taken over from that style one at a time: {}.", fmt::join(told, "; "));
  }
  if (more > 0) {
    text += fmt::format(" {} not told here; --explain {} lists all.",
                        counted(more, "difference is", "differences are"),
                        style);
  }
  if (small > 0) {
    text += fmt::format(
        " {} less than {} %.", counted(small, "difference changes", "differences change"), kSmall);
  }
  if (coupled > 0) {
    text += fmt::format(" {} only together with others.",
                        counted(coupled, "difference is possible", "differences are possible"));
  }
  return text;
}

/// Whether a search may take the staleness of a structure.
bool is_candidate(const Structure& structure, const OptimizerSpec& optimizer) {
  const auto has = [](const std::vector<std::int64_t>& candidates, std::int64_t tau) {
    return std::ranges::find(candidates, tau) != candidates.end();
  };
  // Without a critic tau_critic is 0, whatever the candidates.
  return has(optimizer.staleness_actor, structure.tau_actor) &&
         (structure.tau_critic == 0 || has(optimizer.staleness_critic, structure.tau_critic));
}

}  // namespace

std::string resemblance(const Evaluation& evaluation,
                        const WorkloadConfig& config,
                        const HardwareProfile& profile) {
  const std::optional<Style> style = closest_style(evaluation.plan, config, profile);
  if (!style) return "No published plan style can be laid out on this cluster.";
  const double own_s = evaluation.steady.period_s;
  const double style_s = style->evaluation.steady.period_s;
  const bool is_close = 2 * style->equal_relations >= style->relations;
  std::string text = fmt::format(
      "{}: {}. {} of {} pairs of vertices share, overlap or avoid each other's GPUs as there.",
      is_close ? "The closest published style" : "No published style is close; the closest",
      description(style->name),
      style->equal_relations,
      style->relations);
  const auto differences = compare_plans(evaluation.plan, style->evaluation.plan, config, profile);
  if (differences.empty()) return text + " It is that plan.";
  if (!style->evaluation.fits()) {
    text += fmt::format(" That style's plan does not fit here ({}).",
                        style->evaluation.priced.overflow_text);
  } else {
    text += fmt::format(" That style's plan needs {} per iteration, this one {} ({:+.1f} %).",
                        format_seconds(style_s),
                        format_seconds(own_s),
                        percent(own_s - style_s, style_s));
    if (style_s < own_s * (1.0 - kNoticeable)) {
      text +=
          is_candidate(style->evaluation.plan.structure, config.optimizer)
              ? fmt::format(" It is the better one: --start {} begins a search there.", style->name)
              : " Its staleness is not among optimizer.staleness_candidates.";
    }
  }
  return text + differences_text(differences, own_s, style->name);
}

}  // namespace rpeg
