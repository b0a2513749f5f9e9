#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "rpeg/cost/cost_model.h"

namespace rpeg::search {

/// One way to run a vertex on a block: how, how long alone, how much memory alone.
struct SubPlan {
  Parallelism parallelism;
  std::int64_t micro_batches = 1;
  double time_s = 0.0;
  double bytes = 0.0;
};

/// All valid sub-plans of a vertex on blocks of one shape.
struct SubPlans {
  std::vector<SubPlan> all;
  std::size_t fastest = 0;  ///< that fits alone; when none fits, the smallest
};

/// Sub-plans by vertex and shape of the block, made when first asked for. The time of a vertex
/// depends on the shape of its block, not on where the block lies. Safe to share between threads:
/// its content does not depend on who asks first.
class SubPlanTable {
 public:
  SubPlanTable(const WorkloadConfig& config, const HardwareProfile& profile);

  const WorkloadConfig& config() const { return config_; }
  const HardwareProfile& profile() const { return profile_; }
  /// The vertices of every structure (structures differ in their edges).
  const std::vector<Vertex>& vertices() const { return graph_.vertices; }
  const SubPlans& of(std::size_t vertex, const Placement& block);
  /// The entry of a given split, or nothing when it is not valid on that block.
  std::optional<SubPlan> find(std::size_t vertex,
                              const Placement& block,
                              const Parallelism& parallelism,
                              std::int64_t micro_batches);

 private:
  using Key = std::tuple<std::size_t, int, int, int>;
  SubPlans enumerate(std::size_t vertex, const Placement& block) const;

  const WorkloadConfig& config_;
  const HardwareProfile& profile_;
  Graph graph_;
  std::mutex mutex_;
  std::map<Key, std::unique_ptr<const SubPlans>> table_;
};

/// The plan of a vertex on a block with a sub-plan.
VertexPlan place(const SubPlan& sub_plan, const Placement& block);

/// The largest block that a plan may fill: the cluster, or the block with the most GPUs within
/// hardware.max_gpus (among equals the one on the fewest nodes).
Placement usable_block(const ClusterSpec& cluster);

/// The block inside `region` with the most GPUs on which the vertex has a valid sub-plan.
Placement largest_block(SubPlanTable& table, std::size_t vertex, const Placement& region);

}  // namespace rpeg::search
