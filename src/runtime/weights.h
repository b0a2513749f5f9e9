#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "rpeg/comm/comm.h"
#include "rpeg/job/job.h"
#include "rpeg/model/optimizer.h"
#include "rpeg/model/transformer.h"

namespace rpeg {

/// What training adds to a model on the ranks that train it.
struct TrainingState {
  std::vector<float> gradient;           ///< of the rank's shard
  AdamWState optimizer;                  ///< ZeRO-1: of the rank's chunk of the shard
  std::optional<double> reward_kl_coef;  ///< PPO: of the next iteration, once one has been trained
};

/// A rank's shard of one copy of a model (`Job::copies`). All vertices of the copy share it.
struct HeldModel {
  ModelSpec spec;
  ParameterLayout layout;
  std::vector<float> weights;
  std::int64_t version = 0;               ///< v: the weights after iterations 0 … v − 1
  std::size_t arrived_messages = 0;       ///< of the next version, while its messages come in
  std::optional<TrainingState> training;  ///< on the ranks that train it
  ShardGroups groups;                     ///< the ranks that hold the replica together

  Model<float> model() const { return {&spec, &layout, weights, groups}; }
};

/// The copies that a rank holds a shard of, by index into `Job::copies`.
using RankModels = std::map<int, HeldModel>;

/// Loads or initialises what the vertices of this rank's program need. Deterministic: all ranks
/// start from the same weights and no initial transfer is needed.
RankModels build_rank_models(const Job& job, int rank);

/// The copy that a vertex uses in `iteration`. Throws kInternal unless it has that iteration's
/// version, max(0, iteration − tau); a frozen one stays at 0.
HeldModel& model_for(const Job& job, RankModels& models, VertexId vertex, std::int64_t iteration);

/// A weights message: the version (int64) and the sender's clock (double seconds), then the
/// slices. Receiving the last message of a version makes it the copy's version.
struct WeightHeader {
  std::int64_t version = 0;
  double sent_s = 0.0;
};
Bytes encode_weights(const WeightTransfer& transfer,
                     const WeightMessage& message,
                     const HeldModel& model,
                     double now_s);
/// `expected` messages of a version go to this rank.
WeightHeader decode_weights(const WeightTransfer& transfer,
                            const WeightMessage& message,
                            const Bytes& bytes,
                            std::size_t expected,
                            HeldModel& model);

}  // namespace rpeg
