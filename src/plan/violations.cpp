#include <fmt/format.h>

#include "rpeg/base/error.h"
#include "rpeg/plan/cells.h"
#include "rpeg/plan/plan.h"
#include "rpeg/plan/plan_text.h"

namespace rpeg {
namespace {

/// Collects the broken rules of one vertex.
class VertexChecker {
 public:
  VertexChecker(const Vertex& vertex,
                const VertexPlan& plan,
                const Structure& structure,
                const WorkloadConfig& config)
      : vertex_(vertex), plan_(plan), structure_(structure), config_(config) {}

  std::vector<Violation> violations() {
    if (check_positive()) {
      check_block();
      check_tensor_parallel();
      check_pipeline_parallel();
      check_batch();
    }
    return std::move(violations_);
  }

 private:
  void add(std::string message) { violations_.push_back({vertex_.name, std::move(message)}); }

  bool check_positive() {
    const Parallelism& p = plan_.parallelism;
    if (p.dp >= 1 && p.pp >= 1 && p.tp >= 1 && plan_.micro_batches >= 1) return true;
    add("dp, pp, tp and micro_batches must be at least 1: they are " + std::to_string(p.dp) + ", " +
        std::to_string(p.pp) + ", " + std::to_string(p.tp) + " and " +
        std::to_string(plan_.micro_batches));
    return false;
  }

  void check_axis(const char* name, const Range& range, int size) {
    if (0 <= range.first && range.first <= range.last && range.last < size) return;
    add(std::string(name) + " " + range_text(range) +
        " of the placement lie outside the cluster, " + "which has " + name + " [0-" +
        std::to_string(size - 1) + "]");
  }

  void check_block() {
    const Placement& block = plan_.placement;
    const std::size_t before = violations_.size();
    check_axis("racks", block.racks, config_.hardware.racks);
    check_axis("nodes", block.nodes, config_.hardware.nodes_per_rack);
    check_axis("gpus", block.gpus, config_.hardware.gpus_per_node);
    if (violations_.size() != before) return;
    const Parallelism& p = plan_.parallelism;
    const std::int64_t product = std::int64_t{p.dp} * p.pp * p.tp;
    if (product != block.gpu_count()) {
      add("dp * pp * tp = " + std::to_string(p.dp) + " * " + std::to_string(p.pp) + " * " +
          std::to_string(p.tp) + " = " + std::to_string(product) + ", but the block " +
          placement_text(block) + " has " + std::to_string(block.gpu_count()) + " GPUs");
    }
  }

  void check_tensor_parallel() {
    const int tp = plan_.parallelism.tp;
    const std::string tp_text = "tp = " + std::to_string(tp);
    const ModelSpec& model = config_.model(vertex_.model);
    if (tp > config_.hardware.gpus_per_node) {
      add(tp_text + " exceeds gpus_per_node = " + std::to_string(config_.hardware.gpus_per_node));
    }
    if (config_.optimizer.max_tp && tp > *config_.optimizer.max_tp) {
      add(tp_text + " exceeds optimizer.max_tp = " + std::to_string(*config_.optimizer.max_tp));
    }
    if (model.num_heads % tp != 0) {
      add(tp_text + " does not divide the " + std::to_string(model.num_heads) + " query heads");
    }
    if (model.num_kv_heads % tp != 0 && tp % model.num_kv_heads != 0) {
      add(tp_text + " neither divides nor is a multiple of the " +
          std::to_string(model.num_kv_heads) + " KV heads");
    }
    if (model.ffn_dim % tp != 0) {
      add(tp_text + " does not divide ffn_dim = " + std::to_string(model.ffn_dim));
    }
  }

  void check_pipeline_parallel() {
    const int pp = plan_.parallelism.pp;
    const ModelSpec& model = config_.model(vertex_.model);
    if (pp > model.layers) {
      add("pp = " + std::to_string(pp) + " exceeds the " + std::to_string(model.layers) +
          " layers");
    }
    if (config_.optimizer.max_pp && pp > *config_.optimizer.max_pp) {
      add("pp = " + std::to_string(pp) +
          " exceeds optimizer.max_pp = " + std::to_string(*config_.optimizer.max_pp));
    }
  }

  /// What the smallest call works on: a mini-batch, a chunk, or the batch.
  std::string call_text() const {
    if (is_training(vertex_.op)) {
      return config_.policy.minibatches > 1 ? "smallest mini-batch" : "batch";
    }
    return is_inference(vertex_.op) && structure_.cuts != 0 ? "smallest chunk" : "batch";
  }

  void check_batch() {
    const int dp = plan_.parallelism.dp;
    const std::int64_t units = smallest_call_units(vertex_, structure_, config_) /
                               (is_training(vertex_.op) ? config_.policy.minibatches : 1);
    const char* what = sequences_per_unit(vertex_, config_) == 2 ? "pairs" : "sequences";
    if (dp > units) {
      add(fmt::format("dp = {} exceeds the {} {} of the {}", dp, units, what, call_text()));
    } else if (plan_.micro_batches > units / dp) {
      add(fmt::format("micro_batches = {} exceeds the {} {} of the smallest replica's {}",
                      plan_.micro_batches,
                      units / dp,
                      what,
                      call_text()));
    }
  }

  const Vertex& vertex_;
  const VertexPlan& plan_;
  const Structure& structure_;
  const WorkloadConfig& config_;
  std::vector<Violation> violations_;
};

/// What the inputs allow of a structure.
void check_structure(const Structure& structure,
                     const WorkloadConfig& config,
                     std::vector<Violation>* violations) {
  const auto add = [&](std::string message) { violations->push_back({"", std::move(message)}); };
  if (structure.ac_share && !config.policy.allow_ac_share) {
    add("actor and critic share a trunk, which policy.allow_ac_share does not allow");
  }
  if (structure.ac_share && structure.tau_actor != structure.tau_critic) {
    add(fmt::format("a shared trunk has one staleness: tau is {} of the actor and {} of the critic",
                    structure.tau_actor,
                    structure.tau_critic));
  }
  if ((structure.cuts & ~possible_cuts(config)) != 0) {
    add("generation is cut where the inputs do not allow it");
  }
}

}  // namespace

std::vector<Violation> find_violations(const Plan& plan,
                                       const Graph& graph,
                                       const WorkloadConfig& config) {
  if (plan.vertices.size() != graph.vertices.size()) {
    return {{"",
             "the plan decides for " + std::to_string(plan.vertices.size()) +
                 " vertices, the graph has " + std::to_string(graph.vertices.size())}};
  }
  std::vector<Violation> violations;
  check_structure(plan.structure, config, &violations);
  for (std::size_t i = 0; i < plan.vertices.size(); ++i) {
    for (Violation& violation :
         VertexChecker(graph.vertices[i], plan.vertices[i], plan.structure, config).violations()) {
      violations.push_back(std::move(violation));
    }
  }
  if (violations.empty() && config.hardware.max_gpus &&
      active_gpu_count(plan) > *config.hardware.max_gpus) {
    violations.push_back(
        {"",
         "the plan uses " + std::to_string(active_gpu_count(plan)) +
             " GPUs, more than hardware.max_gpus = " + std::to_string(*config.hardware.max_gpus)});
  }
  return violations;
}

}  // namespace rpeg
