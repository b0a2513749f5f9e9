#include <cmath>
#include <utility>

#include "search/exhaustive.h"
#include "search/symmetry.h"

namespace rpeg::search {
namespace {

constexpr double kMostCombinations = 2e7;  // of blocks, that are looked at to count plans

std::vector<Range> ranges(int size) {
  std::vector<Range> result;
  for (int first = 0; first < size; ++first) {
    for (int last = first; last < size; ++last) result.push_back({first, last});
  }
  return result;
}

}  // namespace

std::vector<Placement> all_blocks(const ClusterSpec& cluster) {
  std::vector<Placement> blocks;
  for (const Range& racks : ranges(cluster.racks)) {
    for (const Range& nodes : ranges(cluster.nodes_per_rack)) {
      for (const Range& gpus : ranges(cluster.gpus_per_node)) {
        blocks.push_back({racks, nodes, gpus});
      }
    }
  }
  return blocks;
}

namespace {

/// Counts the sub-plans of all normal tuples of blocks.
class DistinctCounter {
 public:
  DistinctCounter(SubPlanTable& table, const std::vector<std::size_t>& kinds)
      : sites_(kinds.size()), blocks_(kinds.size()) {
    for (std::size_t v = 0; v < kinds.size(); ++v) {
      for (const Placement& block : all_blocks(table.config().hardware)) {
        const auto count = static_cast<double>(table.of(kinds[v], block).all.size());
        if (count > 0.0) sites_[v].emplace_back(block, count);
      }
      table.trim();
    }
  }
  double combinations() const {
    double product = 1.0;
    for (const auto& sites : sites_) product *= static_cast<double>(sites.size());
    return product;
  }
  double plans() const {
    double product = 1.0;
    for (const auto& sites : sites_) {
      double sum = 0.0;
      for (const auto& [block, count] : sites) sum += count;
      product *= sum;
    }
    return product;
  }
  double distinct() { return count(0, 1.0); }

 private:
  double count(std::size_t v, double factor) {
    if (v == blocks_.size()) return is_normal(blocks_) ? factor : 0.0;
    double sum = 0.0;
    for (const auto& [block, choices] : sites_[v]) {
      blocks_[v] = block;
      sum += count(v + 1, factor * choices);
    }
    return sum;
  }

  std::vector<std::vector<std::pair<Placement, double>>> sites_;
  std::vector<Placement> blocks_;
};

double block_count(const ClusterSpec& cluster) {
  double product = 1.0;
  for (const double size : {static_cast<double>(cluster.racks),
                            static_cast<double>(cluster.nodes_per_rack),
                            static_cast<double>(cluster.gpus_per_node)}) {
    product *= size * (size + 1.0) / 2.0;
  }
  return product;
}

}  // namespace

SpaceSize space_size(SubPlanTable& table) {
  const Space& space = table.space();
  std::array<double, 2> structures{};
  for (const Structure& structure : all_structures(space)) {
    structures[structure.ac_share ? 1 : 0] += 1.0;
  }
  SpaceSize size;
  for (std::size_t share = 0; share < 2; ++share) {
    const std::vector<std::size_t>& kinds = space.kind_of[share];
    if (kinds.empty() || structures[share] <= 0.0) continue;
    const double blocks = block_count(table.config().hardware);
    if (blocks > kMostCombinations) {
      // At least one sub-plan a block would be too many to look at already.
      const double least = structures[share] * std::pow(blocks, static_cast<double>(kinds.size()));
      size.plans += least;
      size.distinct += least;
      continue;
    }
    DistinctCounter counter(table, kinds);
    size.plans += structures[share] * counter.plans();
    size.distinct +=
        structures[share] *
        (counter.combinations() <= kMostCombinations ? counter.distinct() : counter.plans());
  }
  return size;
}

}  // namespace rpeg::search
