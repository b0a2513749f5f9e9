#include <algorithm>

#include "job/programs.h"
#include "rpeg/base/error.h"
#include "rpeg/job/job.h"

namespace rpeg {
namespace {

std::vector<int> ranks_of(const Job& job, const Placement& placement) {
  std::vector<int> ranks;
  for (const int gpu : placement_gpus(placement, job.inputs.hardware)) {
    const auto at =
        std::lower_bound(job.ranks.begin(), job.ranks.end(), gpu, [](const RankSpec& rank, int g) {
          return rank.gpu < g;
        });
    check(at != job.ranks.end() && at->gpu == gpu, "job: a vertex is placed on a GPU without rank");
    ranks.push_back(static_cast<int>(at - job.ranks.begin()));
  }
  return ranks;
}

}  // namespace

const VertexPlan& plan_of(const Job& job, VertexId vertex) {
  return job.plan.vertices.at(static_cast<std::size_t>(job.plan_vertex.at(index(vertex))));
}

const Block& block_of(const Job& job, VertexId vertex) {
  return job.blocks.at(static_cast<std::size_t>(job.vertex_block.at(index(vertex))));
}

const WeightCopy& copy_of(const Job& job, VertexId vertex) {
  return job.copies.at(static_cast<std::size_t>(job.vertex_copy.at(index(vertex))));
}

std::optional<BlockPlace> place_in_block(const Block& block, int rank) {
  const auto found = std::find(block.ranks.begin(), block.ranks.end(), rank);
  if (found == block.ranks.end()) {
    return std::nullopt;
  }
  const auto i = static_cast<int>(found - block.ranks.begin());
  const Parallelism& p = block.parallelism;
  return BlockPlace{.dp = i / p.tp % p.dp, .pp = i / (p.tp * p.dp), .tp = i % p.tp};
}

int rank_at(const Block& block, const BlockPlace& place) {
  const Parallelism& p = block.parallelism;
  return block.ranks.at(static_cast<std::size_t>((place.pp * p.dp + place.dp) * p.tp + place.tp));
}

std::vector<int> replica_ranks(const Block& block, int dp) {
  std::vector<int> ranks;
  for (int pp = 0; pp < block.parallelism.pp; ++pp) {
    for (int tp = 0; tp < block.parallelism.tp; ++tp) {
      ranks.push_back(rank_at(block, {dp, pp, tp}));
    }
  }
  return ranks;
}

std::vector<int> leader_ranks(const Block& block) { return data_ranks(block, {}); }

std::vector<int> tensor_ranks(const Block& block, const BlockPlace& place) {
  std::vector<int> ranks;
  for (int tp = 0; tp < block.parallelism.tp; ++tp) {
    ranks.push_back(rank_at(block, {place.dp, place.pp, tp}));
  }
  return ranks;
}

std::vector<int> pipeline_ranks(const Block& block, const BlockPlace& place) {
  std::vector<int> ranks;
  for (int pp = 0; pp < block.parallelism.pp; ++pp) {
    ranks.push_back(rank_at(block, {place.dp, pp, place.tp}));
  }
  return ranks;
}

std::vector<int> data_ranks(const Block& block, const BlockPlace& place) {
  std::vector<int> ranks;
  for (int dp = 0; dp < block.parallelism.dp; ++dp) {
    ranks.push_back(rank_at(block, {dp, place.pp, place.tp}));
  }
  return ranks;
}

ModelShard shard_at(const ModelSpec& spec, const Block& block, const BlockPlace& place) {
  const Parallelism& p = block.parallelism;
  const auto [first, last] = stage_layers(spec.layers, p.pp, place.pp);
  return {.tp = p.tp,
          .tp_rank = place.tp,
          .first_layer = first,
          .last_layer = last,
          .has_embedding = place.pp == 0,
          .has_head = place.pp + 1 == p.pp};
}

std::vector<int> vertex_leaders(const Job& job, VertexId vertex) {
  return leader_ranks(block_of(job, vertex));
}

void build_blocks(Job* job) {
  for (std::size_t i = 0; i < job->graph.vertices.size(); ++i) {
    const VertexPlan& plan = plan_of(*job, VertexId{static_cast<std::int32_t>(i)});
    Block block{plan.parallelism, ranks_of(*job, plan.placement)};
    const auto known = std::find(job->blocks.begin(), job->blocks.end(), block);
    job->vertex_block.push_back(static_cast<std::int32_t>(known - job->blocks.begin()));
    if (known == job->blocks.end()) {
      job->blocks.push_back(std::move(block));
    }
  }
}

}  // namespace rpeg
