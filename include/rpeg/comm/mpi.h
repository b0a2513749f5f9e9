#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rpeg/comm/comm.h"

namespace rpeg {

/// Most bytes that one MPI call carries; longer messages travel in pieces.
inline constexpr std::size_t kLargestPieceBytes = std::size_t{1} << 30;

/// Owns MPI_Init and MPI_Finalize. One per process; outlives every group made from it.
class MpiSession {
 public:
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// All ranks of the job; call it once, on all ranks. A smaller `piece_bytes` is for tests.
  std::unique_ptr<Comm> world(std::size_t piece_bytes = kLargestPieceBytes);
  int rank() const;
  int size() const;
  /// Ends every rank of the job at once with this exit code; never returns. For an error on one
  /// rank while others may wait in a collective.
  [[noreturn]] void abort(int code);
  /// "Open MPI v4.1.4, …"
  static std::string library_version();
};

/// Where a rank runs.
struct RankLocation {
  int rack = 0;
  int node = 0;  ///< within its rack
  int slot = 0;  ///< within its node
  bool operator==(const RankLocation&) const = default;
};

/// What one rank knows about where it runs.
struct RankHost {
  int node_leader = 0;           ///< lowest rank that shares memory with it
  std::string topology_address;  ///< "spine.rack0.node3", or ""
};

/// Locations by rank. Nodes are numbered in the order of their first rank. racks > 0: equal runs of
/// nodes; kUsage when they do not divide. racks = 0: nodes whose addresses agree in all but the
/// last component are one rack.
std::vector<RankLocation> assign_locations(std::span<const RankHost> hosts, int racks);

/// Locations of all ranks of `world`, by rank: nodes by shared memory (MPI_Comm_split_type), racks
/// by `racks` (equal runs of nodes; 0: from `topology_address` of each rank, as Slurm's
/// SLURM_TOPOLOGY_ADDR "spine.rack0.node3", or one rack when empty).
std::vector<RankLocation> discover_locations(Comm& world,
                                             int racks,
                                             const std::string& topology_address);

}  // namespace rpeg
