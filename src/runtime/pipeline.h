#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "rpeg/model/stage.h"

namespace rpeg {

/// One step of a pipeline stage: a pass of one micro-batch through its layers.
struct PipelineStep {
  bool is_backward = false;
  std::int64_t micro_batch = 0;
  bool operator==(const PipelineStep&) const = default;
};

/// Forward passes that a stage has done without their backward passes, at most: the micro-batches
/// whose activations it holds at once, min(micro_batches, stages − stage).
std::int64_t most_in_flight(int stage, int stages, std::int64_t micro_batches);

/// The steps of a stage under the one-forward-one-backward schedule (Narayanan et al., "PipeDream",
/// 2019; flushed at the end of a mini-batch as in Narayanan et al., "Efficient large-scale language
/// model training on GPU clusters", 2021): a few forward passes to fill the pipeline, then forward
/// and backward in turn, then the remaining backward passes. Both directions go by ascending
/// micro-batch.
std::vector<PipelineStep> one_forward_one_backward(int stage,
                                                   int stages,
                                                   std::int64_t micro_batches);

/// Memory of a rank's passes, shared by all its models; reused, so that passes allocate nothing
/// once they have seen their largest batch.
struct PipelineBuffers {
  std::vector<Activations<float>> in_flight;  ///< one a micro-batch in flight
  std::vector<float> scratch;                 ///< of whichever pass runs
  std::vector<float> head_scratch;            ///< of what the last stage does
  std::vector<float> d_hidden;                ///< (T, h) derivative by the stage's output
};

/// What the last stage does with its output `hidden` (T, h) of a micro-batch.
using InferenceHead = std::function<void(std::size_t micro_batch, std::span<const float> hidden)>;
/// The same in training: adds the loss's derivative by `hidden` to `d_hidden` (T, h), and that by
/// the head's weights to the gradient.
using TrainingHead = std::function<void(
    std::size_t micro_batch, std::span<const float> hidden, std::span<float> d_hidden)>;

/// Runs this rank's stage forward over all micro-batches: hidden states come from the stage before
/// and go to the one after (model.groups.pipeline); the last stage calls `head` for each. All ranks
/// of the replica enter it with the same batches.
void run_forward(const Model<float>& model,
                 std::span<const PackedBatch* const> micro_batches,
                 PipelineBuffers& buffers,
                 const InferenceHead& head);

/// Runs forward and backward passes of all micro-batches by `one_forward_one_backward`, adding to
/// `gradient` (layout->total). Entered by all ranks of the replica with the same batches.
void run_forward_backward(const Model<float>& model,
                          std::span<const PackedBatch* const> micro_batches,
                          Recompute recompute,
                          PipelineBuffers& buffers,
                          const TrainingHead& head,
                          std::span<float> gradient);

}  // namespace rpeg
