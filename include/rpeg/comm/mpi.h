#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rpeg/comm/comm.h"

namespace rpeg {

/// Owns MPI_Init and MPI_Finalize. One per process.
class MpiSession {
 public:
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// All ranks of the job.
  std::unique_ptr<Comm> world();
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

/// Locations of all ranks of `world`, by rank: nodes by shared memory (MPI_Comm_split_type), racks
/// by `racks` (equal runs of nodes; 0: from `topology_address` of each rank, as Slurm's
/// SLURM_TOPOLOGY_ADDR "spine.rack0.node3", or one rack when empty).
std::vector<RankLocation> discover_locations(Comm& world,
                                             int racks,
                                             const std::string& topology_address);

}  // namespace rpeg
