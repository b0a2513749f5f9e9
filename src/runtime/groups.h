#pragma once

#include <map>
#include <memory>

#include "rpeg/comm/comm.h"
#include "rpeg/job/job.h"
#include "rpeg/model/transformer.h"

namespace rpeg {

/// The groups of a block that this rank is in. A group of one rank exists too, so that handlers
/// need no special case; a rank that is no leader has no `leaders`.
struct BlockGroups {
  Parallelism parallelism;
  BlockPlace place;
  std::unique_ptr<Comm> all;          ///< the block, in its rank order
  std::unique_ptr<Comm> replica;      ///< the ranks of a data-parallel replica, leader first
  std::unique_ptr<Comm> tensor;       ///< by tp
  std::unique_ptr<Comm> pipeline;     ///< by pp
  std::unique_ptr<Comm> data;         ///< the same shard of every replica, by dp
  std::unique_ptr<Comm> leaders;      ///< of all replicas, by dp; null on other ranks
  std::unique_ptr<Comm> kv_replicas;  ///< ranks that share a key-value head; null when tp ≤ n_kv

  bool is_leader() const { return place.pp == 0 && place.tp == 0; }
  bool is_last_stage() const { return place.pp + 1 == parallelism.pp; }
  /// What the model needs of them; null where a group is this rank alone.
  ShardGroups shard_groups() const;
};

/// By index into `Job::blocks`.
using RankGroups = std::map<int, BlockGroups>;

/// Forms the groups of all blocks that this rank is in. Every rank of `world` calls it; groups are
/// formed in one order on all ranks.
RankGroups form_groups(const Job& job, Comm& world);

}  // namespace rpeg
