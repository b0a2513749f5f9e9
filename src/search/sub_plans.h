#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "rpeg/cost/cost_model.h"
#include "search/space.h"

namespace rpeg::search {

/// One way to run a vertex on a block.
struct SubPlan {
  Parallelism parallelism;
  std::int64_t micro_batches = 1;
  bool operator==(const SubPlan&) const = default;
};

/// A vertex alone on its block.
struct Alone {
  double time_s = 0.0;
  double bytes = 0.0;  ///< of the fullest GPU; generation with as many KV slots as it can use
  bool fits = false;
};

/// All valid sub-plans of a vertex on blocks of one shape that keep the pins.
struct SubPlans {
  std::vector<SubPlan> all;
  std::optional<std::size_t> fastest;  ///< see SubPlanTable::fastest; empty: not asked for yet
};

/// Sub-plans by vertex and shape of the block, made when first asked for: they depend on the shape
/// of the block, not on where it lies. Its content does not depend on who asks first; it is not
/// safe to share between threads.
class SubPlanTable {
 public:
  SubPlanTable(const Space& space, const HardwareProfile& profile);

  const Space& space() const { return space_; }
  const WorkloadConfig& config() const { return *space_.config; }
  const HardwareProfile& profile() const { return profile_; }

  /// Valid until the next `trim`.
  const SubPlans& of(std::size_t kind, const Placement& block) { return entry(kind, block); }
  /// The fastest alone that fits alone; when none fits, the smallest. There must be one.
  const SubPlan& fastest(std::size_t kind, const Placement& block);
  /// Whether a split is structurally valid on the block and keeps the pins of the kind. Looks
  /// nothing up.
  bool is_valid(std::size_t kind,
                const Placement& block,
                const Parallelism& split,
                std::int64_t micro_batches) const;
  /// Whether the block has any valid sub-plan that keeps the pins.
  bool has_any(std::size_t kind, const Placement& block) { return !of(kind, block).all.empty(); }
  /// Most micro-batches of a split.
  std::int64_t most_micro_batches(std::size_t kind, const Parallelism& split) const;
  /// Valid tensor-parallel sizes, ascending, and the largest number of stages.
  const std::vector<int>& tensor_sizes(std::size_t kind) const { return limits_[kind].tp; }
  int most_stages(std::size_t kind) const { return limits_[kind].pp; }
  Alone alone(std::size_t kind, const VertexPlan& plan) const;

  /// Forgets entries when there are very many: on large clusters a long search sees more shapes
  /// than are worth keeping.
  void trim();

 private:
  /// What validity depends on besides the block.
  struct Limits {
    std::vector<int> tp;     ///< valid sizes, ascending
    int pp = 1;              ///< largest
    std::int64_t units = 1;  ///< sequences or pairs of the smallest mini-batch
    bool generates = false;
  };
  Limits limits_of(const Vertex& vertex) const;
  SubPlans& entry(std::size_t kind, const Placement& block);
  SubPlans enumerate(std::size_t kind, const Placement& block) const;
  void add_micro_batches(std::size_t kind, const Parallelism& split, SubPlans& result) const;

  const Space& space_;
  const HardwareProfile& profile_;
  std::vector<Limits> limits_;  ///< per kind
  std::unordered_map<std::uint64_t, SubPlans> table_;
  std::size_t kept_ = 0;  ///< sub-plans in the table
};

/// The plan of a vertex on a block with a sub-plan.
VertexPlan place(const SubPlan& sub_plan, const Placement& block);

/// The largest block that a plan may fill: the cluster, or the block with the most GPUs within
/// hardware.max_gpus (among equals the one on the fewest nodes).
Placement usable_block(const ClusterSpec& cluster);

/// The block inside `region` with the most GPUs on which a vertex has a valid sub-plan that keeps
/// the pins; the pinned block where there is one; nothing when there is none.
std::optional<Placement> largest_block(SubPlanTable& table,
                                       std::size_t kind,
                                       const Placement& region);

}  // namespace rpeg::search
