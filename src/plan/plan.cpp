#include "rpeg/plan/plan.h"

#include <charconv>

#include "rpeg/base/error.h"
#include "rpeg/plan/cells.h"

namespace rpeg {
namespace {

std::string range_text(const Range& range) {
  return "[" + std::to_string(range.first) + "-" + std::to_string(range.last) + "]";
}

/// Reads a placement from left to right.
class PlacementParser {
 public:
  explicit PlacementParser(const std::string& text)
      : text_(text), at_(text.data()), end_(text.data() + text.size()) {}

  Placement parse() {
    Placement placement;
    expect('r');
    placement.racks = range();
    expect(' ');
    expect('n');
    placement.nodes = range();
    expect(' ');
    expect('g');
    placement.gpus = range();
    if (at_ != end_) fail("end of text");
    return placement;
  }

 private:
  [[noreturn]] void fail(const std::string& wanted) const {
    throw Error(ErrorKind::kUsage,
                "placement `" + text_ + "`: expected " + wanted + " at character " +
                    std::to_string(at_ - text_.data() + 1) +
                    "; a placement reads like `r0 n[0-3] g[0-7]`");
  }

  void expect(char wanted) {
    if (at_ == end_ || *at_ != wanted) fail("`" + std::string(1, wanted) + "`");
    ++at_;
  }

  int number() {
    int value = 0;
    // A sign is no part of the grammar, but from_chars would take one.
    if (at_ == end_ || *at_ < '0' || *at_ > '9') fail("a number");
    const auto [next, error] = std::from_chars(at_, end_, value);
    if (error != std::errc{}) fail("a number that fits in 31 bits");
    at_ = next;
    return value;
  }

  Range range() {
    if (at_ == end_ || *at_ != '[') {
      const int value = number();
      return {value, value};
    }
    expect('[');
    Range result;
    result.first = number();
    expect('-');
    result.last = number();
    if (result.last < result.first) fail("a range that does not descend");
    expect(']');
    return result;
  }

  const std::string& text_;
  const char* at_;
  const char* end_;
};

/// Collects the broken rules of one vertex.
class VertexChecker {
 public:
  VertexChecker(const Vertex& vertex, const VertexPlan& plan, const WorkloadConfig& config)
      : vertex_(vertex), plan_(plan), config_(config) {}

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

  void check_batch() {
    const int dp = plan_.parallelism.dp;
    const bool trains = is_training(vertex_.op);
    const std::int64_t units =
        batch_units(vertex_, config_) / (trains ? config_.policy.minibatches : 1);
    const std::string what =
        trains && config_.policy.minibatches > 1 ? "smallest mini-batch" : "batch";
    if (dp > units) {
      add("dp = " + std::to_string(dp) + " exceeds the " + std::to_string(units) + " " +
          (sequences_per_unit(vertex_, config_) == 2 ? "pairs" : "sequences") + " of the " + what);
    } else if (plan_.micro_batches > units / dp) {
      add("micro_batches = " + std::to_string(plan_.micro_batches) + " exceeds the " +
          std::to_string(units / dp) + " " +
          (sequences_per_unit(vertex_, config_) == 2 ? "pairs" : "sequences") +
          " of the smallest replica's " + what);
    }
  }

  const Vertex& vertex_;
  const VertexPlan& plan_;
  const WorkloadConfig& config_;
  std::vector<Violation> violations_;
};

/// The DPO vertices that see chosen and rejected together.
bool works_on_pairs(const Vertex& vertex, const WorkloadConfig& config) {
  return config.policy.algorithm == Algorithm::kDpo &&
         (vertex.op == Op::kTrain || vertex.op == Op::kInferReference);
}

/// Part `i` of `total` things dealt to `parts` as evenly as possible, the first parts larger.
std::pair<std::int64_t, std::int64_t> even_part(std::int64_t total, int parts, int i) {
  const std::int64_t size = total / parts;
  const std::int64_t larger = total % parts;
  const std::int64_t first = i * size + std::min<std::int64_t>(i, larger);
  return {first, first + size + (i < larger ? 1 : 0)};
}

}  // namespace

std::string placement_text(const Placement& placement) {
  const std::string racks = placement.racks.count() == 1 ? std::to_string(placement.racks.first)
                                                         : range_text(placement.racks);
  return "r" + racks + " n" + range_text(placement.nodes) + " g" + range_text(placement.gpus);
}

Placement parse_placement(const std::string& text) { return PlacementParser(text).parse(); }

std::vector<int> placement_gpus(const Placement& placement, const ClusterSpec& cluster) {
  std::vector<int> gpus;
  gpus.reserve(static_cast<std::size_t>(placement.gpu_count()));
  for (int rack = placement.racks.first; rack <= placement.racks.last; ++rack) {
    for (int node = placement.nodes.first; node <= placement.nodes.last; ++node) {
      for (int gpu = placement.gpus.first; gpu <= placement.gpus.last; ++gpu) {
        gpus.push_back((rack * cluster.nodes_per_rack + node) * cluster.gpus_per_node + gpu);
      }
    }
  }
  return gpus;
}

std::vector<Violation> find_violations(const Plan& plan,
                                       const Graph& graph,
                                       const WorkloadConfig& config) {
  if (plan.vertices.size() != graph.vertices.size()) {
    return {{"",
             "the plan decides for " + std::to_string(plan.vertices.size()) +
                 " vertices, the graph has " + std::to_string(graph.vertices.size())}};
  }
  std::vector<Violation> violations;
  for (std::size_t i = 0; i < plan.vertices.size(); ++i) {
    for (Violation& violation :
         VertexChecker(graph.vertices[i], plan.vertices[i], config).violations()) {
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

std::int64_t batch_units(const Vertex& vertex, const WorkloadConfig& config) {
  return works_on_pairs(vertex, config) ? config.workload.batch_size : config.workload.sequences();
}

std::int64_t sequences_per_unit(const Vertex& vertex, const WorkloadConfig& config) {
  return works_on_pairs(vertex, config) ? 2 : 1;
}

std::pair<std::int64_t, std::int64_t> replica_sequences(std::int64_t sequences,
                                                        int dp,
                                                        int replica) {
  return even_part(sequences, dp, replica);
}

std::pair<std::int64_t, std::int64_t> stage_layers(std::int64_t layers, int pp, int stage) {
  return even_part(layers, pp, stage);
}

}  // namespace rpeg
