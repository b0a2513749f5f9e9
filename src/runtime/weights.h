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
  std::vector<float> gradient;
  AdamWState optimizer;
};

/// A rank's one copy of a model. All vertices of the rank that use the model share it.
struct HeldModel {
  ModelSpec spec;
  ParameterLayout layout;
  std::vector<float> weights;
  std::int64_t version = 0;               ///< v: the weights after iterations 0 … v − 1
  std::size_t arrived_tensors = 0;        ///< of version + 1, while its messages come in
  std::optional<TrainingState> training;  ///< on the ranks that train it

  Model<float> model() const { return {&spec, &layout, weights}; }
};

/// Every model that a rank holds.
using RankModels = std::map<ModelRole, HeldModel>;

/// Loads or initialises what the vertices of this rank's program need. Deterministic: all ranks
/// start from the same weights and no initial transfer is needed.
RankModels build_rank_models(const Job& job, int rank);

/// The model of `role` for a vertex of `iteration`. Throws kInternal unless its version is
/// `iteration` (the reference has only version 0).
HeldModel& model_for(RankModels& models, ModelRole role, std::int64_t iteration);

/// A weights message: the version (int64) and the sender's clock (double seconds), then the
/// tensors. Receiving all tensors of the next version makes it the model's version.
struct WeightHeader {
  std::int64_t version = 0;
  double sent_s = 0.0;
};
Bytes encode_weights(const WeightTransfer& transfer,
                     const WeightMessage& message,
                     const HeldModel& model,
                     double now_s);
WeightHeader decode_weights(const WeightTransfer& transfer,
                            const WeightMessage& message,
                            const Bytes& bytes,
                            HeldModel& model);

}  // namespace rpeg
