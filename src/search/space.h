#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "rpeg/plan/plan.h"
#include "rpeg/search/search.h"
#include "rpeg/spec/workload_config.h"

namespace rpeg::search {

/// The plans that a search may take: every structure of the configuration, every pin kept.
struct Space {
  const WorkloadConfig* config = nullptr;
  std::vector<std::int64_t> tau_actor{0};
  std::vector<std::int64_t> tau_critic{0};  ///< {0} where no structure has a t_V
  bool may_share = false;
  bool must_share = false;
  std::uint32_t cuts = 0;  ///< those that a plan may have
  /// The distinct vertices of all structures, generation uncut. A vertex that changes with the
  /// structure (i_V on the critic or on the shared trunk) is there twice.
  std::vector<Vertex> kinds;
  std::vector<Pin> pins;  ///< per kind; empty where nothing is pinned
  /// kind_of[ac_share][v]: the kind of vertex v; empty for a structure that is not in the space.
  std::array<std::vector<std::size_t>, 2> kind_of;
};

/// Throws kUsage for a pin of an unknown vertex, of a block outside the cluster, or of vertices
/// that no structure has together.
Space build_space(const WorkloadConfig& config, const std::vector<Pin>& pins);

/// The same without pins, staleness, sharing and cuts: where the baselines live.
Space plain_space(const WorkloadConfig& config);

/// The kinds of the plan's vertices, in their order.
inline const std::vector<std::size_t>& kinds_of(const Space& space, const Structure& structure) {
  return space.kind_of[structure.ac_share ? 1 : 0];
}

/// Every structure of the space: staleness × sharing × subsets of the cuts.
std::vector<Structure> all_structures(const Space& space);

/// Whether the space has this structure.
bool has_structure(const Space& space, const Structure& structure);

/// Takes actor and critic onto one trunk, or apart again: t_V and t_pi become t_piV with the plan
/// of t_pi, and t_piV becomes both; tau_critic follows tau_actor, or falls back to its first
/// candidate.
void set_sharing(const Space& space, bool share, Plan& plan);

/// Changes the structure, where the space lacks it, to the nearest that it has.
void admit_structure(const Space& space, Plan& plan);

/// Whether the smallest chunk of inference has sequences for every replica and micro-batch.
bool suits_chunks(const Space& space,
                  std::size_t kind,
                  const Structure& structure,
                  const Parallelism& split,
                  std::int64_t micro_batches);
bool suits_chunks(const Space& space, const Plan& plan);

/// Whether a vertex plan keeps what is pinned for its kind.
bool keeps_pin(const Pin& pin, const VertexPlan& plan);
bool keeps_pins(const Space& space, const Plan& plan);

}  // namespace rpeg::search
