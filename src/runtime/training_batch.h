#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "rpeg/loss/policy_loss.h"
#include "runtime/batches.h"
#include "runtime/context.h"

namespace rpeg {

/// Constants of a sequence during all passes of an iteration, per response token.
struct TrainingTerms {
  std::vector<double> old_logprob;
  std::vector<double> ref_logprob;  ///< empty without a reference
  std::vector<double> advantages;   ///< policy
  std::vector<double> old_values;   ///< critic
  std::vector<double> returns;      ///< critic
};

/// What a training vertex needs of an iteration: lengths of the whole global batch, and the terms
/// of the rank's own sequences.
struct TrainingBatch {
  std::vector<double> lengths;                  ///< response tokens of every sequence of the batch
  std::vector<std::int64_t> own;                ///< sequences of this rank, ascending
  std::map<std::int64_t, TrainingTerms> terms;  ///< of `own`
};

/// Builds the batch of t_pi or t_V. Entered by all ranks of the vertex's group together: lengths,
/// scores and whitening moments are of the global batch, whichever rank holds what.
TrainingBatch build_training_batch(RankContext& context,
                                   const Instruction& instruction,
                                   std::int64_t iteration);

/// Counts that the losses of mini-batch `minibatch` are normalised by.
LossNormaliser normaliser_of(const RankContext& context,
                             const TrainingBatch& batch,
                             std::int64_t minibatch);

/// One member of the terms of some sequences, end to end.
std::vector<double> concatenate(const TrainingBatch& batch,
                                std::span<const std::int64_t> sequences,
                                std::vector<double> TrainingTerms::* member);

}  // namespace rpeg
