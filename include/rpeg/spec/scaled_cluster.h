#pragma once

#include "rpeg/spec/workload_config.h"

namespace rpeg {

/// The cluster with another number of GPUs: a part of one node, or whole nodes of the same size,
/// in whole racks once there are more nodes than a rack holds. max_gpus stays where it is smaller.
/// Throws kUsage with the sizes that are possible.
ClusterSpec scaled_cluster(const ClusterSpec& cluster, int gpus);

}  // namespace rpeg
