#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "rpeg/loss/policy_loss.h"
#include "runtime/batches.h"
#include "runtime/context.h"
#include "runtime/pairs.h"

namespace rpeg {

/// Constants of a sequence during all passes of an iteration, per response token. Empty: the
/// vertex's loss has no such term.
struct TrainingTerms {
  std::vector<double> behaviour_logprob;  ///< of the generator
  std::vector<double> old_logprob;        ///< that the ratio is against: the generator's or i_pi's
  std::vector<double> ref_logprob;
  std::vector<double> advantages;
  std::vector<double> old_values;
  std::vector<double> returns;
};

/// What a training vertex needs of an iteration: counts of the whole global batch, and the terms of
/// the replica's own sequences.
struct TrainingBatch {
  std::vector<double> lengths;                  ///< response tokens of every sequence of the batch
  std::vector<std::int64_t> own;                ///< sequences of the replica, ascending
  std::map<std::int64_t, TrainingTerms> terms;  ///< of `own`
  std::vector<SequencePair> pairs;              ///< DPO: kept pairs of `own`, ascending
  std::vector<double> kept;   ///< DPO: pairs (0 or 1) of every prompt of the batch
  double behaviour_kl = 0.0;  ///< mean KL estimate per token, generator against reference, of the
                              ///< global batch; 0 without a reference
};

/// Builds the batch of a training vertex. The leaders compute it together: lengths, scores and
/// whitening moments are of the global batch, whichever replica holds what. All ranks of a replica
/// get their leader's, and the rollouts. `reward_kl_coef` is PPO's coefficient of this iteration.
/// Entered by all ranks of the block.
TrainingBatch build_training_batch(RankContext& context,
                                   const Instruction& instruction,
                                   std::int64_t iteration,
                                   double reward_kl_coef);

/// The sequences of mini-batch `minibatch` of the global batch.
SequenceRange minibatch_of(const Job& job, VertexId vertex, std::int64_t minibatch);

/// Counts that the losses of a mini-batch are normalised by.
LossNormaliser normaliser_of(const Job& job, const TrainingBatch& batch, SequenceRange minibatch);

/// DPO: kept pairs of the global mini-batch; of other algorithms 0.
double pairs_of(const Job& job, const TrainingBatch& batch, SequenceRange minibatch);

/// One member of the terms of some sequences, end to end.
std::vector<double> concatenate(const TrainingBatch& batch,
                                std::span<const std::int64_t> sequences,
                                std::vector<double> TrainingTerms::* member);

}  // namespace rpeg
