#include "cost/reshard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <tuple>

#include "cost/shard.h"
#include "rpeg/base/rng.h"
#include "unit/cost/example.h"

namespace rpeg {
namespace {

VertexPlan on_node(int node, Parallelism parallelism) {
  return {parallelism, 1, {{0, 0}, {node, node}, {0, 3}}};
}

/// Receivers' bytes of a transfer of the example model, by visiting every GPU.
double enumerate_bytes(const VertexPlan& from, const VertexPlan& to, const WorkloadConfig& config) {
  const std::vector<int> sources = placement_gpus(from.placement, config.hardware);
  const std::vector<int> targets = placement_gpus(to.placement, config.hardware);
  double elements = 0.0;
  for (std::size_t rank = 0; rank < targets.size(); ++rank) {
    const int stage = static_cast<int>(rank) / (to.parallelism.dp * to.parallelism.tp);
    elements += stage_elements(
        config.model(ModelRole::kActor), Head::kLanguageModel, to.parallelism, stage);
    for (std::size_t held = 0; held < sources.size(); ++held) {
      if (sources[held] != targets[rank]) continue;
      elements -= common_elements(config.model(ModelRole::kActor),
                                  Head::kLanguageModel,
                                  {from.parallelism, static_cast<int>(held)},
                                  {to.parallelism, static_cast<int>(rank)});
    }
  }
  return 2.0 * elements;
}

TEST(Transfer, CountsWhatEachReceiverDoesNotHold) {
  WorkloadConfig config = example_config();
  config.models.fill(llama_2_70b());
  config.models[0]->vocab_size = 32768;  // no padding at any tp
  const std::vector<VertexPlan> layouts = {{{8, 4, 2}, 1, {{0, 1}, {0, 7}, {0, 3}}},
                                           {{1, 16, 4}, 1, {{0, 1}, {0, 7}, {0, 3}}},
                                           {{2, 3, 4}, 1, {{0, 1}, {2, 4}, {0, 3}}},
                                           {{4, 5, 1}, 1, {{1, 1}, {1, 5}, {0, 3}}},
                                           {{3, 1, 2}, 1, {{0, 0}, {2, 4}, {1, 2}}},
                                           {{1, 3, 4}, 1, {{0, 0}, {3, 6}, {1, 3}}}};
  for (const VertexPlan& from : layouts) {
    for (const VertexPlan& to : layouts) {
      const TimedTask task = price_transfer(actor_training(), from, to, config, example_profile());
      EXPECT_NEAR(task.bytes, enumerate_bytes(from, to, config), 1e-6 * task.bytes + 1.0)
          << placement_text(from.placement) << " to " << placement_text(to.placement);
    }
  }
}

TEST(Transfer, IsBoundByTheNodeUplink) {
  WorkloadConfig config = example_config();
  HardwareProfile profile = example_profile();
  profile.reshard_fixed_s = 0.5;
  profile.reshard_eff = 0.8;
  const double model_bytes = 2.0 * static_cast<double>(parameter_count(llama_2_7b(), false));
  // From a node to another: four copies arrive, but each element crosses the uplink once.
  const TimedTask copies = price_transfer(
      actor_training(), on_node(0, {4, 1, 1}), on_node(1, {4, 1, 1}), config, profile);
  EXPECT_NEAR(copies.time.total_s, 0.5 + model_bytes * 1e-10 / 0.8, 1e-9);
  // Racks apart: the slower uplink.
  VertexPlan far = on_node(1, {4, 1, 1});
  far.placement.racks = {1, 1};
  EXPECT_NEAR(
      price_transfer(actor_training(), on_node(0, {4, 1, 1}), far, config, profile).time.total_s,
      0.5 + model_bytes * 1e-9 / 0.8,
      1e-9);
  // Inside a node every GPU holds the whole: only tp 4 → tp 1 moves, three quarters of the model.
  const TimedTask inside = price_transfer(
      actor_training(), on_node(0, {1, 1, 4}), on_node(0, {4, 1, 1}), config, profile);
  EXPECT_NEAR((inside.time.total_s - 0.5) / (0.75 * model_bytes * 1e-11 / 0.8), 1.0, 2e-3);
}

TEST(Transfer, CrossesTheUplinkOfARackOncePerStage) {
  const WorkloadConfig config = example_config();
  // Each rack of the receiver holds one stage, on all four of its nodes.
  const VertexPlan from{{12, 1, 1}, 1, {{0, 0}, {5, 7}, {0, 3}}};
  const VertexPlan to{{4, 2, 4}, 1, {{0, 1}, {1, 4}, {0, 3}}};
  // 16 of the 32 layers, the final norm and the head.
  const double model = static_cast<double>(parameter_count(llama_2_7b(), false));
  const double stage = 0.5 * (model + 4096.0);
  const TimedTask task = price_transfer(actor_training(), from, to, config, example_profile());
  EXPECT_NEAR(task.time.total_s / (2.0 * stage * 1e-9), 1.0, 1e-6);
}

/// Elements of a model by part: (kind, layer, index) and their number. Matrices in `cells` slices.
using Cells = std::map<std::tuple<char, std::int64_t, std::int64_t>, double>;

/// What one rank holds, part by part.
void add_cells(const ModelSpec& model, const Parallelism& p, int rank, int cells, Cells* held) {
  const int stage = rank / (p.dp * p.tp);
  const int slice = rank % p.tp;
  const auto [first, last] = stage_layers(model.layers, p.pp, stage);
  const double hidden = static_cast<double>(model.hidden_dim);
  const double matrices =
      hidden * static_cast<double>(2 * model.num_heads * model.head_dim + 3 * model.ffn_dim);
  const double table = hidden * static_cast<double>(model.vocab_size);
  const auto add_slices = [&](char kind, std::int64_t layer, double elements) {
    for (int c = slice * cells / p.tp; c < (slice + 1) * cells / p.tp; ++c) {
      (*held)[{kind, layer, c}] = elements / cells;
    }
  };
  for (std::int64_t layer = first; layer < last; ++layer) {
    add_slices('m', layer, matrices);
    (*held)[{'n', layer, 0}] = 2 * hidden;
    const std::int64_t heads = model.num_kv_heads;
    for (std::int64_t h = 0; h < heads; ++h) {
      const bool mine = h < (heads * (slice + 1) + p.tp - 1) / p.tp && h >= heads * slice / p.tp;
      if (mine) (*held)[{'k', layer, h}] = 2 * hidden * static_cast<double>(model.head_dim);
    }
  }
  if (stage == 0) add_slices('t', 0, table);
  if (stage == p.pp - 1) {
    add_slices('h', 0, table);
    (*held)[{'f', 0, 0}] = hidden;
  }
}

/// What the GPUs of a box need and none of them holds, each part once.
double enumerate_missing(const VertexPlan& from,
                         const VertexPlan& to,
                         const Placement& box,
                         const WorkloadConfig& config) {
  const ModelSpec& model = config.model(ModelRole::kActor);
  const int cells = std::lcm(from.parallelism.tp, to.parallelism.tp);
  const auto held_by = [&](const VertexPlan& plan) {
    Cells held;
    const std::vector<int> gpus = placement_gpus(plan.placement, config.hardware);
    const std::vector<int> inside = placement_gpus(box, config.hardware);
    for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
      if (std::find(inside.begin(), inside.end(), gpus[rank]) == inside.end()) continue;
      add_cells(model, plan.parallelism, static_cast<int>(rank), cells, &held);
    }
    return held;
  };
  const Cells need = held_by(to);
  const Cells have = held_by(from);
  double sum = 0.0;
  for (const auto& [part, elements] : need) {
    if (have.count(part) == 0) sum += elements;
  }
  return sum;
}

/// The volume by visiting every GPU, node and rack of the receiver.
TransferVolume enumerate_volume(const VertexPlan& from,
                                const VertexPlan& to,
                                const WorkloadConfig& config) {
  const Range nodes{0, config.hardware.nodes_per_rack - 1};
  const Range gpus{0, config.hardware.gpus_per_node - 1};
  TransferVolume volume;
  const auto largest = [&](double* most, const Placement& box) {
    const double elements = enumerate_missing(from, to, box, config);
    *most = std::max(*most, elements);
    return elements;
  };
  for (int rack = to.placement.racks.first; rack <= to.placement.racks.last; ++rack) {
    largest(&volume.largest_rack, {{rack, rack}, nodes, gpus});
    for (int node = to.placement.nodes.first; node <= to.placement.nodes.last; ++node) {
      largest(&volume.largest_node, {{rack, rack}, {node, node}, gpus});
      for (int gpu = to.placement.gpus.first; gpu <= to.placement.gpus.last; ++gpu) {
        volume.total += largest(&volume.largest_gpu, {{rack, rack}, {node, node}, {gpu, gpu}});
      }
    }
  }
  return volume;
}

/// A block anywhere in the cluster, split in any way.
VertexPlan random_plan(const ClusterSpec& cluster, Rng* rng) {
  const auto range = [rng](int size) {
    const auto first = static_cast<int>(rng->below(size));
    return Range{first, first + static_cast<int>(rng->below(size - first))};
  };
  VertexPlan plan;
  plan.placement = {
      range(cluster.racks), range(cluster.nodes_per_rack), range(cluster.gpus_per_node)};
  const int gpus = plan.placement.gpu_count();
  do {
    plan.parallelism.tp = 1 + static_cast<int>(rng->below(cluster.gpus_per_node));
    plan.parallelism.pp = 1 + static_cast<int>(rng->below(5));
  } while (gpus % (plan.parallelism.tp * plan.parallelism.pp) != 0);
  plan.parallelism.dp = gpus / (plan.parallelism.tp * plan.parallelism.pp);
  return plan;
}

TEST(TransferVolume, AgreesWithAnEnumerationOfLayoutsOfAnyShape) {
  WorkloadConfig config = example_config();
  config.hardware.racks = 3;
  config.hardware.nodes_per_rack = 4;
  config.hardware.gpus_per_node = 4;
  Rng rng(3);
  for (int trial = 0; trial < 150; ++trial) {
    // One, two or twelve KV heads: replicated, or in unequal shares.
    const std::int64_t kv_heads =
        std::array<std::int64_t, 3>{1, 2, 12}[static_cast<std::size_t>(rng.below(3))];
    config.models.fill(model_of(5, 24, 240, 3840, 12, kv_heads));
    const VertexPlan from = random_plan(config.hardware, &rng);
    const VertexPlan to = random_plan(config.hardware, &rng);
    const TransferVolume volume =
        transfer_volume(config.model(ModelRole::kActor), Head::kLanguageModel, from, to);
    const TransferVolume expected = enumerate_volume(from, to, config);
    const auto same = [&](double TransferVolume::* field) {
      EXPECT_NEAR(volume.*field, expected.*field, 1e-9 * expected.*field + 1e-6)
          << placement_text(from.placement) << " to " << placement_text(to.placement);
    };
    same(&TransferVolume::largest_gpu);
    same(&TransferVolume::largest_node);
    same(&TransferVolume::largest_rack);
    same(&TransferVolume::total);
  }
}

TEST(TransferVolume, CountsReplicatedKvHeadsOncePerNode) {
  // Two KV heads on tp 8: four copies of each arrive in the node, one crosses the uplink.
  ModelSpec model = model_of(4, 64, 64, 1, 16, 2);
  const VertexPlan from{{1, 1, 8}, 1, {{0, 0}, {0, 0}, {0, 7}}};
  const VertexPlan to{{1, 1, 8}, 1, {{0, 0}, {1, 1}, {0, 7}}};
  const TransferVolume volume = transfer_volume(model, Head::kLanguageModel, from, to);
  EXPECT_DOUBLE_EQ(volume.largest_node, static_cast<double>(parameter_count(model, false)));
  const double copies = 4 * (3.0 * 2 * 2 * 64 * 4 + 7.0 * 2 * 64);  // 2 heads of 4, and norms
  EXPECT_DOUBLE_EQ(volume.total - volume.largest_node, copies + 7.0 * 64);  // and the final norm
}

TEST(Transfer, GivesEachConsumerOfASharedTrunkItsHead) {
  const ModelSpec model = llama_2_7b();
  const VertexPlan from = on_node(0, {1, 1, 4});
  const VertexPlan to = on_node(1, {4, 1, 1});
  const auto received = [&](Head head) {
    return transfer_volume(model, head, from, to).largest_gpu;
  };
  EXPECT_DOUBLE_EQ(received(head_of({"g_pi", Op::kGenerate, ModelRole::kActor})),
                   static_cast<double>(parameter_count(model, false)));
  EXPECT_DOUBLE_EQ(received(head_of({"i_V", Op::kInferValue, ModelRole::kActor})),
                   static_cast<double>(parameter_count(model, true)));
}

TEST(Transfer, TakesTheUplinksOfNodesAndRacksWhereTheyAreKnown) {
  const WorkloadConfig config = example_config();
  HardwareProfile profile = example_profile();
  profile.node_bytes_per_s = 5e9;  // a rank's rate is 1e10
  const double bytes = 2.0 * static_cast<double>(parameter_count(llama_2_7b(), false));
  const auto seconds_to = [&](int rack) {
    VertexPlan to = on_node(1, {4, 1, 1});
    to.placement.racks = {rack, rack};
    return price_transfer(actor_training(), on_node(0, {4, 1, 1}), to, config, profile)
        .time.total_s;
  };
  EXPECT_NEAR(seconds_to(0), bytes / 5e9, 1e-9);
  profile.rack_bytes_per_s = 5e8;  // a rank's rate is 1e9
  EXPECT_NEAR(seconds_to(1), bytes / 5e8, 1e-9);
  // A wide uplink leaves the rate of the receiving GPU.
  profile.node_bytes_per_s = 1e12;
  EXPECT_NEAR(seconds_to(0), bytes / 1e10, 1e-9);
}

TEST(TransferVolume, OfThousandsOfNodesIsCountedStageByStage) {
  // The same elements as of a cluster 64 times smaller with the same stages.
  const ModelSpec model = llama_2_70b();
  const auto volume = [&](int racks) {
    const Placement all{{0, racks - 1}, {0, 63}, {0, 7}};
    const int gpus = racks * 64 * 8;
    const VertexPlan from{{gpus / 32, 4, 8}, 4, all};
    const VertexPlan to{{gpus / 4, 1, 4}, 1, all};
    return transfer_volume(model, Head::kLanguageModel, from, to);
  };
  const TransferVolume small = volume(4);
  const TransferVolume large = volume(64);
  EXPECT_DOUBLE_EQ(large.largest_gpu, small.largest_gpu);
  EXPECT_DOUBLE_EQ(large.largest_node, small.largest_node);
  EXPECT_DOUBLE_EQ(large.largest_rack, small.largest_rack);
  EXPECT_NEAR(large.total / small.total, 16.0, 1e-9);
}

}  // namespace
}  // namespace rpeg
