#include "rpeg/spec/scaled_cluster.h"

#include <fmt/format.h>

#include <algorithm>

#include "rpeg/base/error.h"

namespace rpeg {

ClusterSpec scaled_cluster(const ClusterSpec& cluster, int gpus) {
  ClusterSpec scaled = cluster;
  const int node = cluster.gpus_per_node;
  const int rack_nodes = cluster.nodes_per_rack;
  scaled.racks = 1;
  scaled.nodes_per_rack = 1;
  if (gpus >= 1 && gpus < node && node % gpus == 0) {
    scaled.gpus_per_node = gpus;
  } else if (gpus >= node && gpus % node == 0 && gpus / node <= rack_nodes) {
    scaled.nodes_per_rack = gpus / node;
  } else if (gpus >= node && gpus % node == 0 && gpus / node % rack_nodes == 0) {
    scaled.nodes_per_rack = rack_nodes;
    scaled.racks = gpus / node / rack_nodes;
  } else {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("a cluster of {} GPUs cannot be made of nodes of {} GPUs and racks of {} "
                    "nodes: give a divisor of {}, a multiple of it up to {}, or a multiple "
                    "of {}",
                    gpus,
                    node,
                    rack_nodes,
                    node,
                    node * rack_nodes,
                    node * rack_nodes));
  }
  constexpr int kMostGpus = 1'000'000;
  if (gpus > kMostGpus) {
    throw Error(ErrorKind::kUsage,
                fmt::format("a cluster of {} GPUs is larger than {}", gpus, kMostGpus));
  }
  if (scaled.max_gpus) scaled.max_gpus = std::min(*scaled.max_gpus, gpus);
  return scaled;
}

}  // namespace rpeg
