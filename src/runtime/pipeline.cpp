#include "runtime/pipeline.h"

#include <algorithm>
#include <utility>

#include "rpeg/base/error.h"
#include "runtime/message.h"

namespace rpeg {
namespace {

constexpr int kForwardTag = 1;   ///< hidden states, to the stage after
constexpr int kBackwardTag = 2;  ///< their derivatives, to the stage before

/// This rank's stage of one pass over some micro-batches.
struct Stage {
  const Model<float>& model;
  std::span<const PackedBatch* const> micro_batches;
  Recompute recompute;
  PipelineBuffers& buffers;
  std::size_t held = 1;  ///< micro-batches in flight

  int index() const { return model.groups.pipeline == nullptr ? 0 : model.groups.pipeline->rank(); }
  int count() const { return model.groups.pipeline == nullptr ? 1 : model.groups.pipeline->size(); }
  bool is_first() const { return index() == 0; }
  bool is_last() const { return index() + 1 == count(); }
  const PackedBatch& batch(std::int64_t i) const {
    return *micro_batches[static_cast<std::size_t>(i)];
  }
  std::size_t elements(std::int64_t i) const {
    return static_cast<std::size_t>(batch(i).token_count() * model.spec->hidden_dim);
  }
  Activations<float>& activations(std::int64_t i) const {
    return buffers.in_flight[static_cast<std::size_t>(i) % held];
  }
};

void hold(Stage& stage, std::int64_t micro_batches) {
  stage.held = static_cast<std::size_t>(std::max<std::int64_t>(1, micro_batches));
  stage.buffers.in_flight.resize(std::max(stage.held, stage.buffers.in_flight.size()));
}

void send_floats(const Stage& stage, int to, int tag, std::span<const float> values) {
  Bytes message;
  message.reserve(values.size_bytes());
  append_bytes(message, values);
  stage.model.groups.pipeline->send(to, tag, std::move(message));
}

std::vector<float> receive_floats(const Stage& stage, int from, int tag, std::int64_t i) {
  const Bytes message = stage.model.groups.pipeline->receive(from, tag);
  check(message.size() == stage.elements(i) * sizeof(float),
        "pipeline stages disagree about a micro-batch");
  return MessageReader(message).take_vector<float>(stage.elements(i));
}

/// Returns the stage's output.
std::span<const float> forward(const Stage& stage, std::int64_t i) {
  std::vector<float> input;
  if (!stage.is_first()) {
    input = receive_floats(stage, stage.index() - 1, kForwardTag, i);
  }
  Activations<float>& activations = stage.activations(i);
  std::swap(activations.scratch, stage.buffers.scratch);
  const std::span<const float> output = stage_forward(stage.model,
                                                      stage.batch(i),
                                                      stage.is_first() ? nullptr : input.data(),
                                                      stage.recompute,
                                                      activations);
  std::swap(activations.scratch, stage.buffers.scratch);
  if (!stage.is_last()) {
    send_floats(stage, stage.index() + 1, kForwardTag, output);
  }
  return output;
}

/// `d_output` (T, h) is the derivative by what `forward` returned.
void backward(const Stage& stage,
              std::int64_t i,
              std::span<const float> d_output,
              std::span<float> gradient) {
  Activations<float>& activations = stage.activations(i);
  std::swap(activations.scratch, stage.buffers.scratch);
  const std::span<const float> d_input =
      stage_backward(stage.model, stage.batch(i), d_output, stage.recompute, activations, gradient);
  if (!stage.is_first()) {
    send_floats(stage, stage.index() - 1, kBackwardTag, d_input);
  }
  std::swap(activations.scratch, stage.buffers.scratch);
}

}  // namespace

std::int64_t most_in_flight(int stage, int stages, std::int64_t micro_batches) {
  return std::min<std::int64_t>(micro_batches, stages - stage);
}

std::vector<PipelineStep> one_forward_one_backward(int stage,
                                                   int stages,
                                                   std::int64_t micro_batches) {
  std::vector<PipelineStep> steps;
  const std::int64_t warm_up = std::min<std::int64_t>(micro_batches, stages - stage - 1);
  for (std::int64_t i = 0; i < warm_up; ++i) {
    steps.push_back({false, i});
  }
  for (std::int64_t i = 0; i < micro_batches; ++i) {
    if (warm_up + i < micro_batches) {
      steps.push_back({false, warm_up + i});
    }
    steps.push_back({true, i});
  }
  return steps;
}

void run_forward(const Model<float>& model,
                 std::span<const PackedBatch* const> micro_batches,
                 PipelineBuffers& buffers,
                 const InferenceHead& head) {
  // Without a backward pass the mode that keeps the least serves all.
  Stage stage{model, micro_batches, Recompute::kFull, buffers};
  hold(stage, 1);
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    const std::span<const float> hidden = forward(stage, static_cast<std::int64_t>(i));
    if (stage.is_last()) {
      head(i, hidden);
    }
  }
}

void run_forward_backward(const Model<float>& model,
                          std::span<const PackedBatch* const> micro_batches,
                          Recompute recompute,
                          PipelineBuffers& buffers,
                          const TrainingHead& head,
                          std::span<float> gradient) {
  Stage stage{model, micro_batches, recompute, buffers};
  const auto count = static_cast<std::int64_t>(micro_batches.size());
  hold(stage, most_in_flight(stage.index(), stage.count(), count));
  std::span<const float> hidden;  // of the last stage, which has one micro-batch in flight
  for (const PipelineStep& step : one_forward_one_backward(stage.index(), stage.count(), count)) {
    const std::int64_t i = step.micro_batch;
    if (!step.is_backward) {
      hidden = forward(stage, i);
      continue;
    }
    if (stage.is_last()) {
      buffers.d_hidden.assign(stage.elements(i), 0.0F);
      head(static_cast<std::size_t>(i), hidden, buffers.d_hidden);
    } else {
      buffers.d_hidden = receive_floats(stage, stage.index() + 1, kBackwardTag, i);
    }
    backward(stage, i, buffers.d_hidden, gradient);
  }
}

}  // namespace rpeg
