#include "rpeg/spec/scaled_cluster.h"

#include <gtest/gtest.h>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

ClusterSpec cluster() {
  ClusterSpec cluster;
  cluster.racks = 1;
  cluster.nodes_per_rack = 4;
  cluster.gpus_per_node = 8;
  return cluster;
}

void expect_shape(int gpus, int racks, int nodes, int per_node) {
  const ClusterSpec scaled = scaled_cluster(cluster(), gpus);
  EXPECT_EQ(scaled.racks, racks) << gpus;
  EXPECT_EQ(scaled.nodes_per_rack, nodes) << gpus;
  EXPECT_EQ(scaled.gpus_per_node, per_node) << gpus;
}

TEST(ScaledCluster, FillsNodesThenRacks) {
  expect_shape(1, 1, 1, 1);
  expect_shape(4, 1, 1, 4);
  expect_shape(8, 1, 1, 8);
  expect_shape(24, 1, 3, 8);
  expect_shape(32, 1, 4, 8);
  expect_shape(96, 3, 4, 8);
}

TEST(ScaledCluster, RefusesWhatTheNodesCannotMake) {
  for (const int gpus : {-8, 0, 3, 12, 40, 2'000'000'000}) {
    try {
      scaled_cluster(cluster(), gpus);
      ADD_FAILURE() << gpus;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    }
  }
}

TEST(ScaledCluster, KeepsTheLimitThatItCanHold) {
  ClusterSpec limited = cluster();
  limited.max_gpus = 12;
  EXPECT_EQ(scaled_cluster(limited, 8).max_gpus, 8);
  EXPECT_EQ(scaled_cluster(limited, 32).max_gpus, 12);
}

}  // namespace
}  // namespace rpeg
