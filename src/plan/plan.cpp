#include "rpeg/plan/plan.h"

#include <charconv>
#include <cmath>

#include "rpeg/base/error.h"
#include "rpeg/plan/plan_text.h"

namespace rpeg {
namespace {

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

std::int64_t batch_units(const Vertex& vertex, const WorkloadConfig& config) {
  return works_on_pairs(vertex, config) ? config.workload.batch_size : config.workload.sequences();
}

std::int64_t smallest_call_units(const Vertex& vertex,
                                 const Structure& structure,
                                 const WorkloadConfig& config) {
  const std::int64_t units = batch_units(vertex, config);
  if (structure.cuts == 0 || !is_inference(vertex.op)) return units;
  constexpr double kRounding = 1e-9;  // a share times a count that is whole but for rounding
  const std::vector<LengthQuantile>& points = config.workload.gen_quantiles;
  std::int64_t smallest = units;
  std::int64_t before = 0;
  // By hand instead of response_parts: searches call this often, and it must not allocate.
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i + 1 < points.size() && (structure.cuts >> i & 1U) == 0) continue;
    const double share = points[i].probability;
    const auto ended =
        static_cast<std::int64_t>(std::ceil(share * static_cast<double>(units) - kRounding));
    smallest = std::min(smallest, ended - before);
    before = ended;
  }
  return smallest;
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
